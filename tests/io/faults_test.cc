// Failing system calls and failing allocations. This program has functions of its own in place of
// the C library's, which fail when told to and otherwise ask the kernel; so it sees what the
// library does when a disk breaks, a quota is exceeded, or memory ends, at each point where that
// can happen.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

#include "files.h"

namespace {

/// Which call fails next: the `countdown`-th of this name, with this errno.
struct Plan {
  const char* call = "";
  int error = 0;
  long countdown = 0;  // 1: the next one
  bool fails(const char* name) {
    if (error == 0 || std::strcmp(call, name) != 0 || --countdown != 0) return false;
    errno = error;
    return true;
  }
};
Plan plan;
bool dribble = false;        // reads and writes transfer few bytes, every third is interrupted
bool unnamed_files = true;   // O_TMPFILE works
long allocations_left = -1;  // -1: without end
long dribbled = 0;
long reads_left = -1;           // until the file has ended, however long it was; -1: without end
std::function<void()> at_read;  // what happens, once, at the next read
std::function<void()> at_link;  // what happens each time a file has been asked to get a name

constexpr std::size_t kMostBytes = std::size_t{1} << 40;

bool interrupted() {
  if (!dribble || ++dribbled % 3 != 0) return false;
  errno = EINTR;
  return true;
}

}  // namespace

extern "C" {

ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  if (plan.fails("pread") || interrupted()) return -1;
  if (at_read) std::exchange(at_read, nullptr)();
  if (reads_left >= 0 && reads_left-- == 0) return 0;
  return syscall(SYS_pread64, file, to, dribble ? std::min<size_t>(bytes, 7) : bytes, offset);
}
ssize_t pwrite(int file, const void* from, size_t bytes, off_t offset) {
  if (plan.fails("pwrite") || interrupted()) return -1;
  if (plan.fails("pwrite of nothing")) return 0;
  return syscall(SYS_pwrite64, file, from, dribble ? std::min<size_t>(bytes, 7) : bytes, offset);
}
int fsync(int file) {
  if (plan.fails("fsync") || interrupted()) return -1;
  return static_cast<int>(syscall(SYS_fsync, file));
}
int fstat(int file, struct stat* to) noexcept {
  if (plan.fails("fstat")) return -1;
  return static_cast<int>(syscall(SYS_newfstatat, file, "", to, AT_EMPTY_PATH));
}
int close(int file) {
  const bool fails = plan.fails("close");
  const int result = static_cast<int>(syscall(SYS_close, file));  // closed in either case
  if (fails) errno = plan.error;
  return fails ? -1 : result;
}
int linkat(int from_directory, const char* from, int to_directory, const char* to,
           int flags) noexcept {
  if (plan.fails("linkat")) return -1;
  const auto result =
      static_cast<int>(syscall(SYS_linkat, from_directory, from, to_directory, to, flags));
  const int error = errno;
  if (at_link) at_link();
  errno = error;
  return result;
}
int rename(const char* from, const char* to) noexcept {
  if (plan.fails("rename")) return -1;
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int fchmod(int file, mode_t mode) noexcept {
  if (plan.fails("fchmod")) return -1;
  return static_cast<int>(syscall(SYS_fchmod, file, mode));
}
int fcntl(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (plan.fails("fcntl")) return -1;
  return static_cast<int>(syscall(SYS_fcntl, file, command, argument));
}
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = static_cast<mode_t>(va_arg(arguments, int));
  va_end(arguments);
  if (plan.fails("open")) return -1;
  if (!unnamed_files && (flags & O_TMPFILE) == O_TMPFILE) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

}  // extern "C"

// Not inlined: g++ 12 would otherwise match `new` with `free` and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (allocations_left == 0) {
    allocations_left = -1;  // one failure, after which the message can be put together
    throw std::bad_alloc();
  }
  if (allocations_left > 0) --allocations_left;
  if (bytes > kMostBytes) throw std::bad_alloc();  // AddressSanitizer would rather end the process
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace heed::test {
namespace {

const std::vector<std::string> kNames{"x.npy", "x.npz", "x.safetensors"};

TensorFile one(char fill) {
  return {.tensors = {{"x", tensor(DType::u8, {20000}, std::string(20000, fill))}}};
}

std::string content(const std::string& path) {
  return bytes_of(read_tensors(path).tensors.begin()->second);
}

class Faults : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { unnamed_files = GetParam(); }
  void TearDown() override {
    plan = {};
    dribble = false;
    unnamed_files = true;
  }
};

INSTANTIATE_TEST_SUITE_P(file, Faults, testing::Bool(), [](const auto& instance) {
  return instance.param ? "without_name" : "with_temporary_name";
});

TEST_P(Faults, short_transfers_and_interruptions_are_continued) {
  const Directory directory;
  for (const std::string& name : kNames) {
    dribble = true;
    write_tensors(directory / name, one('a'));
    EXPECT_EQ(content(directory / name), std::string(20000, 'a')) << name;
    dribble = false;
    EXPECT_EQ(content(directory / name), std::string(20000, 'a')) << name;
  }
  EXPECT_EQ(directory.entries(), kNames.size());
}

TEST_P(Faults, each_failing_call_of_writing_leaves_the_old_file_and_nothing_else) {
  struct Case {
    const char* call;
    int error;
    const char* message;
  };
  const Case cases[] = {{"pwrite", ENOSPC, "write at offset 0: No space left on device"},
                        {"pwrite", EDQUOT, "write at offset 0: Disk quota exceeded"},
                        {"pwrite", EIO, "write at offset 0: Input/output error"},
                        {"pwrite of nothing", EIO, "write at offset 0: No space left on device"},
                        {"fchmod", EPERM, "set permissions: Operation not permitted"},
                        {"fcntl", EMFILE, "duplicate a descriptor: Too many open files"},
                        {"fsync", EIO, "sync: Input/output error"},
                        {"fsync", ENOSPC, "sync: No space left on device"},
                        {"close", EIO, "close: Input/output error"},
                        {"close", EDQUOT, "close: Disk quota exceeded"},
                        {"rename", EACCES, "rename: Permission denied"}};
  for (const bool exists : {true, false}) {
    for (const std::string& name : kNames) {
      const Directory directory;
      if (exists) write_tensors(directory / name, one('a'));
      for (const Case& c : cases) {
        const bool renames = exists || !unnamed_files;
        if (std::string_view(c.call) == "rename" && !renames) continue;
        if (std::string_view(c.call) == "fchmod" && !exists) continue;  // no permissions to take
        if (std::string_view(c.call) == "fcntl" && !unnamed_files) continue;
        plan = {c.call, c.error, 1};
        const std::string error =
            error_of(directory, [&] { write_tensors(directory / name, one('b')); });
        plan = {};
        EXPECT_EQ(error, "io: " + name + ": cannot " + c.message);
        EXPECT_EQ(directory.entries(), exists ? 1U : 0U) << c.call;
        if (exists) {
          EXPECT_EQ(content(directory / name), std::string(20000, 'a'));
        }
      }
      if (unnamed_files) {
        plan = {"linkat", EPERM, 1};
        EXPECT_EQ(error_of(directory, [&] { write_tensors(directory / name, one('b')); }),
                  "io: " + name + ": cannot link: Operation not permitted");
        EXPECT_EQ(directory.entries(), exists ? 1U : 0U);
      }
    }
  }
}

TEST_P(Faults, every_pwrite_may_fail) {
  for (const std::string& name : kNames) {
    const Directory directory;
    write_tensors(directory / name, one('a'));
    long calls = 0;
    for (bool failed = true; failed; ++calls) {
      plan = {"pwrite", ENOSPC, calls + 1};
      const std::string error =
          error_of(directory, [&] { write_tensors(directory / name, one('b')); });
      plan = {};
      failed = error != "nothing";
      ASSERT_TRUE(!failed || error.ends_with("No space left on device")) << error;
      EXPECT_EQ(content(directory / name), std::string(20000, failed ? 'a' : 'b'));
      EXPECT_EQ(directory.entries(), 1U);
    }
    EXPECT_GT(calls, 1);
  }
}

TEST_P(Faults, a_directory_that_cannot_be_synced_is_told_after_the_file_is_complete) {
  const Directory directory;
  plan = {"fsync", EIO, 2};
  EXPECT_EQ(error_of(directory, [&] { write_tensors(directory / "x.npy", one('b')); }),
            "io: x.npy: cannot sync the directory of the complete file: Input/output error");
  for (const int error : {EINVAL, EROFS}) {  // a file system that knows no such thing
    plan = {"fsync", error, 2};
    write_tensors(directory / "x.npy", one('c'));
    EXPECT_EQ(content(directory / "x.npy"), std::string(20000, 'c'));
  }
}

TEST_P(Faults, an_interrupted_close_has_closed) {
  const Directory directory;
  plan = {"close", EINTR, 1};
  write_tensors(directory / "x.npy", one('a'));
  EXPECT_LE(plan.countdown, 0);  // there was one
  EXPECT_EQ(content(directory / "x.npy"), std::string(20000, 'a'));
}

TEST(faults, a_signal_between_linkat_and_rename_waits_until_the_new_name_is_gone) {
  for (const std::string& name : kNames) {
    for (const bool exists : {true, false}) {
      const Directory directory;
      if (exists) write_tensors(directory / name, one('a'));
      const pid_t child = fork();
      if (child == 0) {
        (void)std::signal(SIGINT, [](int) { _exit(130); });
        at_link = [] { kill(getpid(), SIGINT); };
        write_tensors(directory / name, one('b'));
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_EQ(WEXITSTATUS(status), 130) << name;
      EXPECT_EQ(content(directory / name), std::string(20000, 'b'));
      EXPECT_EQ(directory.entries(), 1U) << name;
    }
  }
}

TEST_P(Faults, a_failing_read_is_told_with_the_reason_of_the_system) {
  for (const std::string& name : kNames) {
    const Directory directory;
    write_tensors(directory / name, one('a'));
    long calls = 0;
    for (bool failed = true; failed; ++calls) {
      plan = {"pread", EIO, calls + 1};
      const std::string error = error_of(directory, [&] { (void)read_tensors(directory / name); });
      plan = {};
      failed = error != "nothing";
      ASSERT_TRUE(!failed || (error.starts_with("io: " + name + ": cannot read at offset ") &&
                              error.ends_with(": Input/output error")))
          << error;
    }
    EXPECT_GT(calls, 2);
  }
}

TEST_P(Faults, a_file_that_shrinks_while_it_is_read_is_told) {
  for (const std::string& name : kNames) {
    const Directory directory;
    write_tensors(directory / name, one('a'));
    long calls = 0;
    for (bool failed = true; failed; ++calls) {
      reads_left = calls;
      const std::string error = error_of(directory, [&] { (void)read_tensors(directory / name); });
      reads_left = -1;
      failed = error != "nothing";
      ASSERT_TRUE(!failed ||
                  error.starts_with("io: " + name + ": the file became shorter while it was read"))
          << error;
    }
    EXPECT_GT(calls, 2);
  }
}

TEST(faults, a_file_whose_size_or_time_changes_while_it_is_read_is_told) {
  const timespec whole[2] = {{1, 0}, {1, 0}};
  const timespec later[2] = {{1, 1}, {1, 1}};
  for (const std::string& name : kNames) {
    const Directory directory;
    const std::string path = directory / name;
    write_tensors(path, one('a'));
    utimensat(AT_FDCWD, path.c_str(), whole, 0);
    const auto refusal = [&] { return error_of(directory, [&] { (void)read_tensors(path); }); };
    at_read = [&] { utimensat(AT_FDCWD, path.c_str(), later, 0); };
    EXPECT_EQ(refusal(), "io: " + name + ": the file changed while it was read");
    utimensat(AT_FDCWD, path.c_str(), whole, 0);
    at_read = [&] {
      std::ofstream(path, std::ios::binary | std::ios::app) << '!';
      utimensat(AT_FDCWD, path.c_str(), whole, 0);  // so that only its size tells
    };
    EXPECT_EQ(refusal(), "io: " + name + ": the file changed while it was read");
  }
}

TEST(faults, a_file_that_cannot_be_looked_at_is_told) {
  for (const std::string& name : kNames) {
    const Directory directory;
    write_tensors(directory / name, one('a'));
    const auto refusal = [&](long call) {
      plan = {"fstat", EIO, call};
      const std::string error = error_of(directory, [&] { (void)read_tensors(directory / name); });
      plan = {};
      return error;
    };
    EXPECT_EQ(refusal(1), "io: " + name + ": cannot open: Input/output error");
    EXPECT_EQ(refusal(2), "io: " + name + ": cannot look at the file again: Input/output error");
    EXPECT_EQ(refusal(3), "nothing");
  }
}

TEST(faults, a_tensor_that_no_memory_can_hold_is_refused_with_its_size) {
  const Directory none;
  EXPECT_EQ(error_of(none, [] { (void)make_tensor(DType::f32, {1LL << 60}); }),
            "memory: make_tensor: cannot allocate 4611686018427387904 bytes for a tensor");
}

TEST_P(Faults, every_allocation_may_fail) {
  for (const std::string& name : kNames) {
    const Directory directory;
    const std::string path = directory / name;
    const TensorFile file = one('b');
    write_tensors(path, one('a'));
    for (const bool writes : {false, true}) {
      long allocations = 0;
      for (bool reached = true; reached; ++allocations) {
        bool failed = false;
        std::string message;
        ErrorKind kind = ErrorKind::memory;
        allocations_left = allocations;
        try {
          if (writes) write_tensors(path, file);
          if (!writes) (void)read_tensors(path);
        } catch (const Error& error) {
          failed = true;
          kind = error.kind();
          message = error.what();
        }
        reached = allocations_left == -1;  // else there were fewer allocations than that
        allocations_left = -1;
        ASSERT_EQ(kind, ErrorKind::memory) << message;
        if (failed) {
          EXPECT_NE(message.find(" bytes"), std::string::npos) << message;
        }
        EXPECT_EQ(content(path), std::string(20000, writes && !failed ? 'b' : 'a'));
        EXPECT_EQ(directory.entries(), 1U);
        write_tensors(path, one('a'));
      }
      EXPECT_GT(allocations, 3) << name;
    }
  }
}

TEST(faults, every_allocation_for_a_text_may_fail) {
  const Directory directory;
  const std::string path = directory / "x.txt";
  const std::string text(20000, 'a');
  write_text(path, text);
  for (const bool writes : {false, true}) {
    long allocations = 0;
    for (bool reached = true; reached; ++allocations) {
      allocations_left = allocations;
      std::string message;
      try {
        if (writes) write_text(path, text);
        if (!writes) (void)read_text(path);
      } catch (const Error& error) {
        message = error.what();
        EXPECT_EQ(error.kind(), ErrorKind::memory) << message;
      }
      reached = allocations_left == -1;
      allocations_left = -1;
      if (!message.empty()) {
        EXPECT_NE(message.find("not enough memory for a file of "), std::string::npos) << message;
      }
      EXPECT_EQ(read_text(path), text);
      EXPECT_EQ(directory.entries(), 1U);
    }
    EXPECT_GT(allocations, 2);
  }
}

}  // namespace
}  // namespace heed::test
