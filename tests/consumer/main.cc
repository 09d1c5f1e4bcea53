// Two equal keys: the mean of their values, 2 and 4. Keys that are wider than queries are an error.
#include <heed/heed.h>

#include <cstdio>
#include <typeinfo>

int main() {
  const float q[] = {1, 1}, k[] = {1, 0, 1, 0}, v[] = {2, 4};
  float output[1];
  heed::attention_forward(heed::view(q, {1, 2}), heed::view(k, {2, 2}), heed::view(v, {2, 1}),
                          {.output = heed::view(output, {1, 1})});
  std::printf("%g\n", static_cast<double>(output[0]));
  try {
    heed::attention_forward(heed::view(q, {1, 2}), heed::view(k, {1, 4}), heed::view(v, {1, 1}),
                            {.output = heed::view(output, {1, 1})});
  } catch (const heed::Error& error) {
    // g++ takes types of one name for one; other compilers ask for one address, here and there.
    const bool one_type = &typeid(error) == &typeid(heed::Error);
    return one_type && error.kind() == heed::ErrorKind::argument ? 0 : 1;
  }
  return 2;
}
