// What only a fresh process shows: variables, first use, exit, unloading.
// Method: probe.cc is run under `timeout`, with the variables set; its output is the answer.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace {

struct Answer {
  std::string text;  // stdout and stderr
  int code;          // 124: it hung
};

Answer ask(const std::string& question, const std::string& variables = "") {
  const std::string command = "env -u HEED_NUM_THREADS -u OMP_NUM_THREADS -u HEED_MAX_ISA " +
                              variables + " timeout -k 1 10 '" HEED_PROBE "' " + question + " 2>&1";
  Answer answer{.text = "", .code = -1};
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return answer;
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    answer.text.append(buffer, n);
  const int status = pclose(pipe);
  answer.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return answer;
}

std::string twice(const std::string& line) { return line + "\n" + line + "\n"; }

TEST(process, heed_num_threads_beats_omp_num_threads) {
  EXPECT_EQ(ask("threads", "HEED_NUM_THREADS=7 OMP_NUM_THREADS=5").text, twice("7"));
  EXPECT_EQ(ask("threads", "OMP_NUM_THREADS=5,2").text, twice("5"));
  EXPECT_EQ(ask("threads", "HEED_NUM_THREADS= OMP_NUM_THREADS=5").text, twice("5"));
}

TEST(process, garbage_number_of_threads_is_an_error_at_every_call) {
  EXPECT_EQ(ask("threads", "HEED_NUM_THREADS=lots").text,
            twice("default_threads: HEED_NUM_THREADS is 'lots'; "
                  "it must be a number from 1 to 4096"));
  EXPECT_EQ(ask("threads", "OMP_NUM_THREADS=0").text,
            twice("default_threads: OMP_NUM_THREADS is '0'; it must be a number from 1 to 4096"));
}

TEST(process, affinity_limits_threads) {
  const Answer answer = ask("threads", "taskset -c 0");
  EXPECT_EQ(answer.text, twice("1"));
}

TEST(process, unknown_instruction_set_is_an_error_at_every_call) {
  EXPECT_EQ(ask("isa", "HEED_MAX_ISA=sse").text,
            twice("instruction_set: HEED_MAX_ISA is 'sse'; it must be one of scalar, neon, avx2, "
                  "avx512, avx512_bf16, neon_bf16"));
}

TEST(process, max_isa_caps_and_a_call_overrides_it) {
  EXPECT_EQ(ask("isa", "HEED_MAX_ISA=scalar").text, twice("scalar"));
  EXPECT_EQ(ask("isa", "HEED_MAX_ISA=neon_bf16").text, ask("isa").text);
  EXPECT_EQ(ask("isa", "HEED_MAX_ISA=").text, ask("isa").text);
  EXPECT_EQ(ask("capped_isa", "HEED_MAX_ISA=garbage").text, twice("scalar"));
}

TEST(process, has_no_thread_of_ours_before_a_parallel_run) {
  const Answer answer = ask("no_thread_before_use");
  EXPECT_EQ(answer.text, "0 3\n");
  EXPECT_EQ(answer.code, 0);
}

TEST(process, pool_works_while_statics_die) {
  const Answer answer = ask("use_after_main");
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(answer.code, 0);
}

TEST(process, ends_when_a_task_calls_exit) {
  for (int round = 0; round < 5; ++round) {
    const Answer answer = ask("exit_in_task");
    EXPECT_EQ(answer.text, "");
    EXPECT_EQ(answer.code, 0);
  }
}

TEST(process, ends_while_another_thread_runs_a_job) {
  for (int round = 0; round < 5; ++round) {
    const Answer answer = ask("exit_while_another_thread_runs");
    EXPECT_EQ(answer.text, "");
    EXPECT_EQ(answer.code, 0);
  }
}

#if !defined(__SANITIZE_THREAD__)  // it takes a child's threads for its parent's and gives up
TEST(process, forked_child_exits_without_hang_or_leak) {
  const Answer answer = ask("exit_of_a_child");
  // LeakSanitizer says that it misses the parent's threads; a leak would say ERROR.
  EXPECT_EQ(answer.text.find("ERROR"), std::string::npos) << answer.text;
  EXPECT_EQ(answer.code, 0);
}
#endif

TEST(process, unloaded_library_takes_its_threads_along) {
  const Answer answer = ask("unload '" HEED_MODULE "'");
  EXPECT_EQ(answer.text, "3 gone 0\n3 gone 0\n3 gone 0\n");
  EXPECT_EQ(answer.code, 0);
}

TEST(process, thread_that_used_an_unloaded_library_ends) {
  const Answer answer = ask("outlive '" HEED_MODULE "'");
  EXPECT_EQ(answer.text, "gone\n");
  EXPECT_EQ(answer.code, 0);
}

// Nothing would free it at the end of a thread, so nothing is kept; calls work all the same.
TEST(process, no_key_of_pthread_left_means_that_nothing_is_kept) {
  const Answer answer = ask("keep_without_a_key '" HEED_MODULE "'");
  EXPECT_EQ(answer.text, "0 0 gone\n");
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(ask("keep_with_the_last_key '" HEED_MODULE "'").text, "4096 4096 gone\n");
}

}  // namespace
