// The names of classes as data files give them, and what the numbers of one list are in another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::data {

/// A list of names that a file has with commas between them, one by one.
std::vector<std::string> split_names(const std::string& names);

/// "class 1 is 'dog' in a.h5 and 'fish' in b.h5": the first class in which two lists differ; empty where they are the
/// same, or one of them is empty.
std::string class_difference(const std::string& a, const std::string& where_a, const std::string& b,
                             const std::string& where_b);

/// The number in the list `known` of each class of the list `names`. Error(kBadData) where `known` lacks one, which is
/// named, or has it twice; `where` is the file that has `names`.
std::vector<int64_t> class_numbers(const std::string& names, const std::string& known, const std::string& where);

}  // namespace vit_hybrid::data
