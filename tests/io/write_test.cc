// What becomes of files when writing fails, is killed, or meets odd directories: always the old
// file or the new one under the name, and nothing else in the directory.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "files.h"

namespace heed::test {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kNames{"x.npy", "x.npz", "x.safetensors"};

TensorFile one(std::int64_t bytes, char fill) {
  return {.tensors = {{"x", tensor(DType::u8, {bytes},
                                   std::string(static_cast<std::size_t>(bytes), fill))}}};
}

std::string content(const std::string& path) {
  return bytes_of(read_tensors(path).tensors.begin()->second);
}

TEST(write, an_old_file_is_replaced_and_keeps_its_permissions) {
  for (const std::string& where : {Directory::disk(), Directory::memory()}) {
    const Directory directory(where);
    for (const std::string& name : kNames) {
      write_tensors(directory / name, one(100, 'a'));
      ASSERT_EQ(chmod((directory / name).c_str(), 0640), 0);
      write_tensors(directory / name, one(50, 'b'));
      EXPECT_EQ(content(directory / name), std::string(50, 'b'));
      struct stat status {};
      ASSERT_EQ(stat((directory / name).c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 07777U, 0640U);
    }
    EXPECT_EQ(directory.entries(), kNames.size());
  }
}

TEST(write, a_new_file_has_the_permissions_that_the_mask_leaves) {
  const Directory directory;
  const mode_t old = umask(027);
  write_tensors(directory / "x.npy", one(10, 'a'));
  umask(old);
  struct stat status {};
  ASSERT_EQ(stat((directory / "x.npy").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0640U);
}

TEST(write, a_type_that_is_none_is_refused) {
  const auto none = static_cast<DType>(13);
  EXPECT_EQ(error_of(Directory(), [&] { (void)make_tensor(none, {2}); }),
            "argument: make_tensor: dtype is 13, which is no DType");
  EXPECT_THROW((void)convert({none, {}, {}}, DType::f32), Error);
  const Directory directory(Directory::disk());
  for (const std::string& name : kNames) {
    EXPECT_THROW(write_tensors(directory / name, {.tensors = {{"x", {none, {0}, {}}}}}), Error)
        << name;
  }
  EXPECT_EQ(directory.entries(), 0U);
}

TEST(write, a_symbolic_link_stays_and_what_it_points_to_is_replaced) {
  const Directory directory;
  fs::create_directory(directory / "real");
  fs::create_symlink("real/target.npy", directory / "link.npy");
  fs::create_symlink(directory / "link.npy", directory / "again.npy");
  for (const char fill : {'a', 'b'}) {  // first the target does not exist
    write_tensors(directory / "again.npy", one(10, fill));
    EXPECT_TRUE(fs::is_symlink(directory / "link.npy"));
    EXPECT_TRUE(fs::is_symlink(directory / "again.npy"));
    EXPECT_EQ(content(directory / "real/target.npy"), std::string(10, fill));
  }
  fs::create_symlink("loop.npy", directory / "loop.npy");
  EXPECT_EQ(error_of(directory, [&] { write_tensors(directory / "loop.npy", one(1, 'a')); }),
            "io: loop.npy: cannot write: Too many levels of symbolic links");
}

TEST(write, a_name_without_directory_means_the_current_one) {
  const Directory directory;
  const fs::path before = fs::current_path();
  fs::current_path(directory.path());
  write_tensors("x.npy", one(10, 'a'));
  fs::current_path(before);
  EXPECT_EQ(content(directory / "x.npy"), std::string(10, 'a'));
}

TEST(write, text_is_written_with_the_same_care) {
  const Directory directory;
  const std::string path = directory / "chart.svg";
  write_text(path, "<svg>");
  write_text(path, std::string(100000, 'x') + "\n");
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), std::string(100000, 'x') + "\n");
  EXPECT_EQ(directory.entries(), 1U);
  const std::string error = error_of(directory, [&] { write_text(directory / "no/x.txt", "x"); });
  EXPECT_EQ(error.rfind("io: no/x.txt: cannot open the directory ", 0), 0U) << error;
}

TEST(write, a_bad_place_is_known_before_anything_is_computed) {
  const Directory directory;
  fs::create_directory(directory / "x.npy");
  put(directory / "file", "");
  const auto error = [&](const std::string& name) {
    const std::string early = error_of(directory, [&] { check_writable(directory / name); });
    EXPECT_EQ(error_of(directory, [&] { write_tensors(directory / name, one(1, 'a')); }), early);
    return early;
  };
  EXPECT_EQ(error("missing/x.npy"),
            "io: missing/x.npy: cannot open the directory \"missing\": No such file or directory");
  EXPECT_EQ(error("file/x.npy"),
            "io: file/x.npy: cannot open the directory \"file\": Not a directory");
  EXPECT_EQ(error("x.npy"), "io: x.npy: cannot write: it exists and is no regular file");
  EXPECT_EQ(error("x.bin"), "argument: x.bin: the name must end in .npy, .npz or .safetensors");
  EXPECT_EQ(error(std::string("a\0.npy", 6)), "io: a\\x00.npy: cannot write: Invalid argument");
  EXPECT_NE(error(std::string(252, 'a') + ".npy").find("a.npy: cannot write: File name too long"),
            std::string::npos);
  EXPECT_EQ(error(std::string(251, 'a') + ".npy"), "nothing");
  EXPECT_EQ(error("y.npy"), "nothing");
  EXPECT_EQ(error_of(directory, [] { write_text("", "a"); }),
            "io: : cannot write: Invalid argument");
  EXPECT_EQ(error_of(directory, [] { write_text("/", "a"); }),
            "io: /: cannot write: it exists and is no regular file");
}

TEST(write, checking_leaves_no_trace) {
  const Directory directory;
  check_writable(directory / "x.npy");
  EXPECT_EQ(directory.entries(), 0U);
  put(directory / "x.npy", "old");
  check_writable(directory / "x.npy");
  EXPECT_EQ(get(directory / "x.npy"), "old");
  EXPECT_EQ(directory.entries(), 1U);
}

/// Runs `test` in a child process, which may change what a process cannot take back.
template <typename Test>
void in_child(Test test) {
  std::fflush(nullptr);  // else the child writes what is buffered once more
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    test();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(write, a_file_size_limit_is_an_error_and_not_the_end_of_the_process) {
  const Directory directory;
  for (const std::string& name : kNames) {
    in_child([&] {
      write_tensors(directory / name, one(100, 'a'));
      const rlimit limit{4096, 4096};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
      const std::string error =
          error_of(directory, [&] { write_tensors(directory / name, one(100000, 'b')); });
      EXPECT_EQ(error, "io: " + name + ": cannot write at offset 4096: File too large");
      EXPECT_EQ(content(directory / name), std::string(100, 'a'));
      sigset_t pending;
      sigpending(&pending);
      EXPECT_EQ(sigismember(&pending, SIGXFSZ), 0);
      sigset_t mask;
      sigprocmask(SIG_BLOCK, nullptr, &mask);
      EXPECT_EQ(sigismember(&mask, SIGXFSZ), 0);
    });
  }
  EXPECT_EQ(directory.entries(), kNames.size());
}

TEST(write, a_signal_of_the_caller_stays_pending) {
  const Directory directory;
  sigset_t signal;
  sigemptyset(&signal);
  sigaddset(&signal, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &signal, nullptr);
  std::raise(SIGXFSZ);
  write_tensors(directory / "x.npy", one(100, 'a'));
  const timespec now{0, 0};
  EXPECT_EQ(sigtimedwait(&signal, nullptr, &now), SIGXFSZ);
  pthread_sigmask(SIG_UNBLOCK, &signal, nullptr);
}

/// A file system of its own, or not if this process may not mount.
class Mount {
 public:
  Mount(const std::string& path, const char* options) : path_(path) {
    fs::create_directory(path);
    mounted_ = mount("heed", path.c_str(), "tmpfs", 0, options) == 0;
  }
  ~Mount() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  [[nodiscard]] bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST(write, a_full_disk_leaves_the_old_file_and_nothing_else) {
  const Directory directory;
  const Mount disk(directory / "disk", "size=256k");
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a tmpfs";
  for (const std::string& name : kNames) {
    const std::string path = directory / ("disk/" + name);
    write_tensors(path, one(1000, 'a'));
    const std::string error = error_of(directory, [&] { write_tensors(path, one(1 << 20, 'b')); });
    EXPECT_NE(error.find("io: disk/" + name + ": cannot write at offset "), std::string::npos)
        << error;
    EXPECT_NE(error.find("No space left on device"), std::string::npos) << error;
    EXPECT_EQ(content(path), std::string(1000, 'a'));
  }
  const fs::directory_iterator all(directory / "disk");
  EXPECT_EQ(static_cast<std::size_t>(std::distance(begin(all), end(all))), kNames.size());
}

TEST(write, a_read_only_directory_is_found_out_in_advance) {
  const Directory directory;
  const Mount disk(directory / "disk", "size=256k");
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a tmpfs";
  const std::string path = directory / "disk/x.npy";
  write_tensors(path, one(10, 'a'));
  ASSERT_EQ(mount("heed", (directory / "disk").c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, ""), 0);
  for (const std::string& error :
       {error_of(directory, [&] { check_writable(path); }),
        error_of(directory, [&] { write_tensors(path, one(9, 'b')); })}) {
    EXPECT_EQ(error.rfind("io: disk/x.npy: cannot create a file in the directory ", 0), 0U)
        << error;
    EXPECT_NE(error.find("Read-only file system"), std::string::npos) << error;
  }
  EXPECT_EQ(content(path), std::string(10, 'a'));
}

/// Points are drawn over the time that a write takes here, so that kills fall into it, before and
/// after.
TEST(write, a_killed_process_leaves_the_old_file_or_the_new_one) {
  constexpr int kOfEach =
      10;  // at least so often the old file stays, and so often the new one is there
  constexpr int kPoints = 50, kMostPoints = 2000;
  constexpr std::int64_t kBytes = 3 << 20;
  const unsigned seed = 7;
  std::mt19937 random(seed);
  const Directory directory(Directory::disk());
  write_tensors(directory / kNames[0], one(kBytes, 'a'));
  const auto begin = std::chrono::steady_clock::now();
  write_tensors(directory / kNames[0], one(kBytes, 'a'));
  const std::chrono::duration<double, std::micro> whole = std::chrono::steady_clock::now() - begin;
  const auto span = static_cast<unsigned>(1.5 * whole.count()) + 1;
  int old_ones = 0, new_ones = 0;
  for (int point = 0; point < kPoints || std::min(old_ones, new_ones) < kOfEach; ++point) {
    ASSERT_LT(point, kMostPoints) << old_ones << " old files, " << new_ones << " new ones";
    const std::string& name = kNames[static_cast<std::size_t>(point) % kNames.size()];
    const std::string path = directory / name;
    write_tensors(path, one(kBytes, 'a'));
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      const TensorFile file = one(kBytes, 'b');
      (void)!write(ready[1], "!", 1);
      write_tensors(path, file);
      _exit(0);
    }
    char sign;
    ASSERT_EQ(::read(ready[0], &sign, 1), 1);
    // An empty sleep now and then: the first kills may otherwise all be late on a busy machine.
    if (point % 5 != 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % span));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
    const std::string now = content(path);
    const bool is_old = now == std::string(kBytes, 'a');
    ASSERT_TRUE(is_old || now == std::string(kBytes, 'b')) << seed;
    ++(is_old ? old_ones : new_ones);
    for (const auto& entry : fs::directory_iterator(directory.path())) {
      if (entry.path().extension() != ".tmp") continue;
      // Killed between linkat and rename: what is left is complete.
      EXPECT_EQ(content(entry.path()), std::string(kBytes, 'b'));
      fs::remove(entry.path());
    }
  }
}

TEST(read, a_file_that_changes_meanwhile_is_refused) {
  const Directory directory;
  const std::string path = directory / "x.npy";
  write_tensors(path, one(1 << 20, 'a'));
  const timespec whole[2] = {{0, 0}, {0, 0}};  // seconds only, as some file systems have it
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), whole, 0), 0);
  std::atomic<bool> stop = false;
  std::thread toucher([&] {
    for (long i = 1; !stop; ++i) {
      const timespec times[2] = {{i, 0}, {i, 0}};
      utimensat(AT_FDCWD, path.c_str(), times, 0);
    }
  });
  std::string error = "nothing";
  for (int attempt = 0; attempt < 1000 && error == "nothing"; ++attempt) {
    error = error_of(directory, [&] { (void)read_tensors(path); });
  }
  stop = true;
  toucher.join();
  EXPECT_EQ(error, "io: x.npy: the file changed while it was read");
}

TEST(read_text, gives_every_byte_of_a_regular_file) {
  const Directory directory;
  const auto error = [&](const char* name, std::int64_t most) {
    return error_of(directory, [&] { (void)read_text(directory / name, most); });
  };
  put(directory / "text", std::string("a\r\n\0\xff", 5));
  EXPECT_EQ(read_text(directory / "text"), std::string("a\r\n\0\xff", 5));
  put(directory / "empty", "");
  EXPECT_EQ(read_text(directory / "empty"), "");
  EXPECT_EQ(error("text", 5), "nothing");
  EXPECT_EQ(error("text", 4), "memory: text: expected a text of at most 4 bytes, found 5");
  EXPECT_EQ(error("none", 0), "io: none: cannot open: No such file or directory");
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(error("pipe", 0), "io: pipe: expected a regular file, found a pipe");
}

TEST(read, what_is_no_regular_file_is_refused_without_waiting) {
  const Directory directory;
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of(directory, [&] { (void)read_tensors(directory / "pipe"); }),
            "io: pipe: expected a regular file, found a pipe");
  fs::create_directory(directory / "folder");
  EXPECT_EQ(error_of(directory, [&] { (void)read_tensors(directory / "folder"); }),
            "io: folder: expected a regular file, found a directory");
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (directory / "socket").copy(address.sun_path, sizeof address.sun_path - 1);
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(error_of(directory, [&] { (void)read_tensors(directory / "socket"); }),
            "io: socket: cannot open: No such device or address");
  close(listener);
  EXPECT_EQ(error_of(directory, [&] { (void)read_tensors(std::string("a\0b", 3)); }),
            "io: a\\x00b: cannot open: Invalid argument");
  EXPECT_EQ(error_of(directory, [&] { (void)read_tensors("/dev/null"); }),
            "io: /dev/null: expected a regular file, found a device");
  EXPECT_EQ(error_of(directory, [&] { (void)read_tensors(directory / "none.npy"); }),
            "io: none.npy: cannot open: No such file or directory");
}

}  // namespace
}  // namespace heed::test
