// heed._core._KvCache and attention_decode. heed.KvCache sees to it that no two calls run at once.
#include <nanobind/stl/string.h>

#include <vector>

#include "bindings.h"
#include "heed/heed.h"
#include "options.h"
#include "run.h"
#include "statistics.h"

namespace heed::python {
namespace {

/// nanobind's own conversion to a vector ends the process where there is no memory for it.
std::vector<SequenceId> ids_of(const nb::list& names) {
  std::vector<SequenceId> ids;
  ids.reserve(names.size());
  for (const nb::handle name : names) ids.push_back(SequenceId{nb::cast<std::int64_t>(name)});
  return ids;
}

void make(KvCache* place, std::int64_t kv_heads, std::int64_t head_size, std::int64_t value_size,
          const std::string& dtype, std::int64_t pages, std::int64_t page_keys) {
  const DType type = dtype_named(dtype.c_str());
  run_without_gil("KvCache", [&] {
    new (place) KvCache({.kv_heads = kv_heads,
                         .head_size = head_size,
                         .value_size = value_size,
                         .dtype = type,
                         .pages = pages,
                         .page_keys = page_keys});
  });
}

void append(KvCache& cache, const nb::list& names, nb::handle k, nb::handle v,
            nb::handle key_offsets) {
  const Array key = Array::read("k", k);
  const Array value = Array::read("v", v);
  const Array offsets = Array::read_optional("key_offsets", key_offsets);
  const std::vector<SequenceId> ids = ids_of(names);
  run_without_gil("append", [&] { cache.append(ids, key.view(), value.view(), offsets.view()); });
}

/// A method of one sequence, with Python's errors.
template <typename Work>
auto of_one(const char* function, const Work& work) {
  std::int64_t result = 0;
  run_without_gil(function, [&] { result = work(); });
  return result;
}

void attention_decode_of(nb::handle q, const KvCache& cache, const nb::list& names,
                         nb::handle output, nb::handle lse, nb::handle statistics,
                         const nb::tuple& options, int threads) {
  const Array query = Array::read("q", q);
  check_types("attention_decode", query.view().dtype, {});
  const Array result = Array::write("out", output);
  const Array sums = Array::write_optional("lse", lse);
  const Statistics rows(statistics);
  const Options settings(options);
  const std::vector<SequenceId> ids = ids_of(names);
  settings.run("attention_decode", [&] {
    InterruptibleExecutor executor(threads);
    attention_decode(query.view(), cache, ids,
                     {.output = result.view(), .lse = sums.view(), .statistics = rows.get()},
                     settings.get(), settings.run_on(executor));
  });
}

}  // namespace

void bind_cache(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<KvCache>(module, "_KvCache")
      .def("__init__", &make)
      .def("create",
           [](KvCache& cache) {
             return of_one("create", [&] { return static_cast<std::int64_t>(cache.create()); });
           })
      .def("fork",
           [](KvCache& cache, std::int64_t name) {
             return of_one("fork",
                           [&] { return static_cast<std::int64_t>(cache.fork(SequenceId{name})); });
           })
      .def("release",
           [](KvCache& cache, std::int64_t name) {
             run_without_gil("release", [&] { cache.release(SequenceId{name}); });
           })
      .def("append", &append, "sequences"_a, "k"_a.none(), "v"_a.none(), "key_offsets"_a.none())
      .def("truncate",
           [](KvCache& cache, std::int64_t name, std::int64_t keys) {
             run_without_gil("truncate", [&] { cache.truncate(SequenceId{name}, keys); });
           })
      .def("evict",
           [](KvCache& cache, std::int64_t name, std::int64_t keys) {
             run_without_gil("evict", [&] { cache.evict(SequenceId{name}, keys); });
           })
      .def("length",
           [](const KvCache& cache, std::int64_t name) {
             return of_one("length", [&] { return cache.length(SequenceId{name}); });
           })
      .def("evicted",
           [](const KvCache& cache, std::int64_t name) {
             return of_one("evicted", [&] { return cache.evicted(SequenceId{name}); });
           })
      .def("free_pages", &KvCache::free_pages)
      .def("sequences", &KvCache::sequences);
  module.def("attention_decode", &attention_decode_of, "q"_a.none(), "cache"_a, "sequences"_a,
             "output"_a.none(), "lse"_a.none(), "statistics"_a.none(), "options"_a, "threads"_a,
             "Attention of the sequences' last rows against the cache, into arrays.");
}

}  // namespace heed::python
