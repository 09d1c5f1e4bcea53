// Counts the tensors of the installed sample: q, k, v. A file that is not there is an error.
#include <heed/error.h>
#include <heed/io.h>
#include <heed/modules_io.h>

#include <cstdio>
#include <string>
#include <typeinfo>

int main(int, char** argv) {
  std::printf("%zu\n", heed::read_tensors(argv[1]).tensors.size());
  try {
    (void)heed::read_tensors(std::string(argv[1]) + "/absent.npy");
  } catch (const heed::Error& error) {
    const bool one_type = &typeid(error) == &typeid(heed::Error);  // see main.cc
    return one_type && error.kind() == heed::ErrorKind::io ? 0 : 1;
  }
  return 2;
}
