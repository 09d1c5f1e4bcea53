// Running the forward-mode derivative.
#pragma once

#include <gtest/gtest.h>

#include "forward/cases.h"
#include "forward/half.h"
#include "forward/support.h"
#include "heed/jvp.h"
#include "oracle/tangents.h"

namespace heed_test {

/// Normal directions of every input; bias moves in its own shape, or in that of the scores.
template <typename T>
struct Motion {
  Tensor<T> q, k, v;
  Tensor<double> bias;

  oracle::Directions<T> plain() const {
    oracle::Directions<T> d;
    if (q.present()) d.q = q.plain();
    if (k.present()) d.k = k.plain();
    if (v.present()) d.v = v.plain();
    if (bias.present()) d.bias = bias.plain();
    return d;
  }
};

template <typename T>
Motion<T> draw_motion(const Call<T>& s, std::uint64_t seed, Layout layout = Layout::bhtd) {
  Random random(seed);
  Motion<T> m{Tensor<T>(s.q.shape, layout), Tensor<T>(s.k.shape, layout),
              Tensor<T>(s.v.shape, layout), Tensor<double>()};
  fill_normal(m.q, random);
  fill_normal(m.k, random);
  fill_normal(m.v, random);
  const Dims d = s.dims();
  m.bias = Tensor<double>(s.bias.present() ? s.bias.shape : Shape{d.batch, 1, d.queries, d.keys});
  m.bias.each([&](auto b, auto h, auto i, auto j) {  // exact in every float type
    m.bias.at(b, h, i, j) = static_cast<double>(random.between(-255, 255)) / 64;
  });
  return m;
}

template <typename T>
struct MovedResult {
  Tensor<T> o, lse;
};

/// Results are 0xFF before; fails the test if an element was not written, or anything beside them
/// was.
template <typename T>
MovedResult<T> run_jvp(const Call<T>& s, const Result<T>& forward, const Motion<T>& m,
                       const heed::Execution& execution = {}, Layout layout = Layout::bhtd) {
  const Told<T> told(s);
  const Dims d = s.dims();
  MovedResult<T> r{Tensor<T>({d.batch, d.heads, d.queries, d.value_size}, layout),
                   Tensor<T>({d.batch, d.heads, d.queries, 1}, layout)};
  heed::ConstTensorView lse = forward.lse.view(s.rank);
  heed::TensorView moved_lse = r.lse.out(s.rank);
  --lse.rank;
  --moved_lse.rank;
  const auto shown = [&](const auto& t) {
    return t.present() ? t.view(s.rank) : heed::ConstTensorView{};
  };
  heed::attention_jvp({.q = s.q.view(s.rank),
                       .k = s.k.view(s.rank),
                       .v = s.v.view(s.rank),
                       .output = forward.o.view(s.rank),
                       .lse = lse},
                      {.q = shown(m.q), .k = shown(m.k), .v = shown(m.v), .bias = shown(m.bias)},
                      {.output = r.o.out(s.rank), .lse = moved_lse}, told.options, execution);
  expect_written_exactly(r.o, "the derivative of output");
  expect_written_exactly(r.lse, "the derivative of lse");
  return r;
}

template <typename T>
MovedResult<T> run_jvp(const Call<T>& s, const Motion<T>& m,
                       const heed::Execution& execution = {}) {
  return run_jvp(s, run(s), m, execution);
}

/// In 16 bits, on results of somebody else; the moved output comes back as floats.
inline MovedResult<float> run_half_jvp(const Call<float>& s, const Result<float>& forward,
                                       const Motion<float>& m, Layout layout, heed::DType dtype,
                                       const heed::Execution& execution = {}) {
  const Halves q(s.q, dtype), k(s.k, dtype), v(s.v, dtype), o(forward.o, dtype);
  const Halves mq(m.q, dtype), mk(m.k, dtype), mv(m.v, dtype);
  Halves moved(forward.o.shape, layout, dtype);
  MovedResult<float> got{{}, Tensor<float>(forward.lse.shape)};
  const Told<float> told(s);
  heed::ConstTensorView lse = forward.lse.view(s.rank);
  heed::TensorView moved_lse = got.lse.out(s.rank);
  --lse.rank;
  --moved_lse.rank;
  heed::attention_jvp({.q = q.view(s.rank),
                       .k = k.view(s.rank),
                       .v = v.view(s.rank),
                       .output = o.view(s.rank),
                       .lse = lse},
                      {.q = mq.view(s.rank),
                       .k = mk.view(s.rank),
                       .v = mv.view(s.rank),
                       .bias = m.bias.present() ? m.bias.view(s.rank) : heed::ConstTensorView{}},
                      {.output = moved.out(s.rank), .lse = moved_lse}, told.options, execution);
  got.o = moved.written("the derivative of output");
  expect_written_exactly(got.lse, "the derivative of lse");
  return got;
}

template <typename T>
testing::AssertionResult same_bits(const MovedResult<T>& a, const MovedResult<T>& b) {
  if (const auto o = same_bits(a.o, b.o); !o) return o;
  return same_bits(a.lse, b.lse);
}

}  // namespace heed_test
