// Memory that cannot be had while what has much text is drawn. Method: this program's operator new
// fails at the n-th call, for every n until none does. Required: std::bad_alloc, or the same bytes
// as ever, never a picture that lacks something. tests/faults/test_program.py does so with all
// pictures and with pages, of which ./dev test --full alone has the time for every n.
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <string>
#include <vector>

#include "forward/failing_allocation.h"
#include "made_inspection.h"
#include "picture_parts.h"
#include "pictures.h"

namespace heed::cli {
namespace {

std::string bytes_of(const std::vector<Picture>& pictures) {
  std::string all;
  for (const auto& [name, bytes] : pictures) all += name + bytes;
  return all;
}

void expect_whole_or_none(const std::function<std::string()>& make) {
  const std::string whole = make();
  long n = 1;
  for (bool reached = true; reached; ++n) {
    bool refused = false;
    std::string made;
    failing = n;
    try {
      made = make();
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    reached = failing.exchange(0) <= 0;
    ASSERT_TRUE(refused || made == whole) << "allocation " << n;
  }
  EXPECT_GT(n, 20);
}

const Terminal kTerminal{.width = 80, .unicode = true};

Inspection one_head() { return made_inspection(random_operands(1, 1, 3, 2), Sight::causal, 3); }

TEST(picture_memory, lacking_leaves_no_poster_without_its_parts) {
  const Inspection seen = one_head();
  expect_whole_or_none([&] {
    std::vector<Picture> pictures;
    add_poster(pictures, seen);
    return bytes_of(pictures);
  });
}

TEST(picture_memory, lacking_leaves_no_difference_without_its_parts) {
  const Inspection first = one_head();
  const Inspection second = made_inspection(random_operands(1, 1, 3, 5), Sight::causal, 3);
  expect_whole_or_none([&] { return bytes_of(difference_of(first, second)); });
}

TEST(picture_memory, lacking_leaves_no_text_without_its_parts) {
  const Inspection seen = one_head();
  expect_whole_or_none([&] { return poster_text(seen, kTerminal); });
  expect_whole_or_none([&] { return arcs_text(seen, {}, 2, kTerminal); });
}

}  // namespace
}  // namespace heed::cli
