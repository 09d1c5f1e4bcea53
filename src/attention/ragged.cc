// Batch entries with numbers of rows of their own: what packing says, and where their rows lie.
#include "attention/ragged.h"

#include "attention/element.h"
#include "attention/lists.h"

namespace heed {

std::int64_t count_sequences(const Checker& check, const char* name,
                             const ConstTensorView& offsets) {
  check.require(offsets.present(), name, " is absent; expected both offsets of packing or none");
  check.memory(name, offsets, true);
  check.require(offsets.dtype == DType::i32 || offsets.dtype == DType::i64, name, " is ",
                offsets.dtype, "; expected ", DType::i32, " or ", DType::i64);
  check.require(offsets.rank == 1 && offsets.shape[0] >= 1, name, " has shape ",
                List{offsets.shape, offsets.rank},
                "; expected [S + 1], where each sequence begins and where the last ends");
  return offsets.shape[0] - 1;
}

void read_offsets(const Checker& check, const char* name, const ConstTensorView& offsets,
                  std::int64_t rows, std::vector<std::int64_t>* first,
                  std::vector<std::int64_t>* counts) {
  PerBatch at;
  at.each = offsets;
  std::int64_t begin = entry(at, 0, 0);
  check.require(begin >= 0, Entry{name, 0}, " is ", begin, "; expected 0 or more");
  for (std::int64_t s = 1; s < offsets.shape[0]; ++s) {
    const std::int64_t end = entry(at, s, 0);
    check.require(end >= begin, Entry{name, s}, " is ", end, ", the offset before ", begin,
                  "; offsets must not descend");
    first->push_back(begin);
    counts->push_back(end - begin);
    begin = end;
  }
  check.require(begin <= rows, Entry{name, offsets.shape[0] - 1}, " is ", begin,
                "; expected at most ", rows, ", the number of rows");
}

namespace {

void place(const std::vector<std::int64_t>& first, const std::int64_t* View4::*axis, View4* view) {
  if (view->present && !first.empty()) view->*axis = first.data();
}

}  // namespace

std::shared_ptr<const Ragged> check_packing(const Checker& check, const Problem& p,
                                            const Packing& packing) {
  if (!packing.present()) return nullptr;
  check.require(p.batches == 1, "packing is given, and the batch size is ", p.batches,
                "; expected 1: sequences lie end to end in one batch entry");
  const std::int64_t sequences =
      count_sequences(check, "packing.query_offsets", packing.query_offsets);
  check.require(sequences == count_sequences(check, "packing.key_offsets", packing.key_offsets),
                "packing.key_offsets has shape ", List{packing.key_offsets.shape, 1},
                ", packing.query_offsets ", List{packing.query_offsets.shape, 1},
                "; they must be equal");
  return with_lists(check.function(), [&] {
    auto entries = std::make_shared<Ragged>();
    entries->all_queries = p.queries;
    read_offsets(check, "packing.query_offsets", packing.query_offsets, p.queries,
                 &entries->first_query, &entries->queries);
    read_offsets(check, "packing.key_offsets", packing.key_offsets, p.keys, &entries->first_key,
                 &entries->keys);
    return entries;
  });
}

void place_queries(const Problem& p, View4* view) {
  if (p.ragged != nullptr) place(p.ragged->first_query, &View4::first_row, view);
}

void place_keys(const Problem& p, View4* view) {
  if (p.ragged != nullptr) place(p.ragged->first_key, &View4::first_row, view);
}

void place_pairs(const Problem& p, View4* view) {
  place_queries(p, view);
  if (p.ragged != nullptr) place(p.ragged->first_key, &View4::first_column, view);
}

void place_entries(Problem* p) {
  if (p->ragged == nullptr) return;
  const Ragged& ragged = *p->ragged;
  p->batches = ragged.entries();
  p->queries = Ragged::largest(ragged.queries);
  p->keys = Ragged::largest(ragged.keys);
  for (View4* view : {&p->q, &p->output, &p->lse, &p->weights}) place_queries(*p, view);
  for (View4& view : p->statistics) place_queries(*p, &view);
  for (View4* view : {&p->k, &p->v}) place_keys(*p, view);
  for (View4* view : {&p->bias, &p->keep, &p->drop}) place_pairs(*p, view);
  if (ragged.tables.empty()) return;
  p->k.pages = &ragged.k_pages;
  p->v.pages = &ragged.v_pages;
}

}  // namespace heed
