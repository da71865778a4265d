// Lists of class names: splitting, comparing, and finding one in the other.
#include "data/datasets/class_names.h"

#include <algorithm>
#include <sstream>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr size_t kMostShownClasses = 8;  // in a message

// One of two lists may have ended.
std::string class_at(const std::vector<std::string>& names, size_t i) {
  return i < names.size() ? str("'", shown(names[i]), "'") : "not there";
}

// Of names as they are to be shown.
std::string some_names(std::vector<std::string> names) {
  const size_t more = names.size() - std::min(names.size(), kMostShownClasses);
  names.resize(names.size() - more);
  return join(names) + (more == 0 ? "" : str(" and ", more, " more"));
}

std::vector<std::string> shown_list(std::vector<std::string> names) {
  std::transform(names.begin(), names.end(), names.begin(), [](const std::string& name) { return shown(name); });
  return names;
}

}  // namespace

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> result;
  std::istringstream text(names);
  for (std::string name; std::getline(text, name, ',');) {
    result.push_back(name);
  }
  return result;
}

std::string class_difference(const std::string& a, const std::string& where_a, const std::string& b,
                             const std::string& where_b) {
  if (a.empty() || b.empty() || a == b) {
    return {};
  }
  const std::vector<std::string> of_a = split_names(a);
  const std::vector<std::string> of_b = split_names(b);
  size_t first = 0;
  while (first < of_a.size() && first < of_b.size() && of_a[first] == of_b[first]) {
    ++first;
  }
  return str("class ", first, " is ", class_at(of_a, first), " in ", where_a, " and ", class_at(of_b, first), " in ",
             where_b);
}

std::vector<int64_t> class_numbers(const std::string& names, const std::string& known, const std::string& where) {
  const std::vector<std::string> list = split_names(known);
  std::vector<int64_t> numbers;
  std::vector<std::string> unknown;
  for (const std::string& name : split_names(names)) {
    const auto found = std::find(list.begin(), list.end(), name);
    if (found == list.end()) {
      unknown.push_back(str("'", shown(name), "'"));
      continue;
    }
    if (std::find(found + 1, list.end(), name) != list.end()) {
      throw Error(ErrorClass::kBadData,
                  str("two classes of the model have the name '", shown(name), "' that ", where, " names"),
                  "classes of one name cannot be told apart");
    }
    numbers.push_back(found - list.begin());
  }
  if (!unknown.empty()) {
    throw Error(ErrorClass::kBadData,
                str(where, " has classes that the model was not trained on: ", some_names(unknown), "; it knows ",
                    some_names(shown_list(list))),
                "give data of the classes of the training, in any order, all or some of them");
  }
  return numbers;
}

}  // namespace vit_hybrid::data
