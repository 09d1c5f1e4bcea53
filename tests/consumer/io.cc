// Counts the tensors of the sample that was installed: q, k, v.
#include <heed/io.h>
#include <heed/modules_io.h>

#include <cstdio>

int main(int, char** argv) { std::printf("%zu\n", heed::read_tensors(argv[1]).tensors.size()); }
