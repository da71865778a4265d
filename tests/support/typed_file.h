// An HDF5 file with datasets and attributes of the types that a file of fields may have beside numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace vit_hybrid::testing {

/// Adds to the HDF5 file `path`, which has a dataset `target`: `names`, texts of variable length with a fill value, of
/// which the last is not written; `chunked`, such texts in gzipped chunks of two of which only the second is written;
/// `lists`, integers of variable length; `mixed`, a compound of a number, a text and a list; `references` to `names`
/// and to nothing; `region` of `target`; `opaque`, `kinds` (an enum), and `named`, a committed type with a dataset
/// `of_named`. `names` and `target` have attributes of texts, lists and references.
void add_typed_datasets(const std::string& path, const std::string& target);

/// The texts of a one-dimensional dataset of variable-length texts, then its fill value; "(failed)" for what HDF5 does
/// not read.
std::vector<std::string> texts_and_fill(const std::string& path, const std::string& dataset);

/// The names of the objects that a dataset of references refers to; empty texts for nothing.
std::vector<std::string> referred_names(const std::string& path, const std::string& dataset);

/// Makes `name` a dataset (n) float32 whose values are those of the raw file `raw`.
void add_external_dataset(const std::string& path, const std::string& name, const std::string& raw,
                          const std::vector<int64_t>& shape);

/// Makes `name` a dataset of `values`, stored in one chunk with a filter of this number and name that no HDF5 has. An
/// optional filter that fails leaves the chunk as it is.
enum class FilterResult { kDone, kFailed };
void add_foreign_filter(const std::string& path, const std::string& name, const at::Tensor& values, int number,
                        const std::string& filter, FilterResult result = FilterResult::kDone);

}  // namespace vit_hybrid::testing
