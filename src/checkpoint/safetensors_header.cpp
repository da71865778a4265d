// The checks of what a header says, and a header as text.
#include "src/checkpoint/safetensors_header.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>

#include "data/reading/box_runs.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/checkpoint/safetensors_json.h"

namespace vit_hybrid::train {

namespace {

struct Type {
  std::string_view name;
  int64_t bytes;
};
constexpr Type kTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                           {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                           {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8}};

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorClass::kBadData, str(where, " is no safetensors file: ", what),
              "it is damaged or of another format");
}

// Bytes of the values; -1 if they are more than 64 bits can count.
int64_t value_bytes(const SafetensorsEntry& entry) {
  return data::bytes_of_shape(entry.shape, safetensors_type_bytes(entry.type)).value_or(-1);
}

void check(const SafetensorsEntry& entry, int64_t data_bytes, const std::string& where) {
  const std::string tensor = "tensor " + shown_name(entry.name);
  if (safetensors_type_bytes(entry.type) == 0) {
    refuse(where, str(tensor, " is of the unknown type ", shown_name(entry.type)));
  }
  if (entry.begin > entry.end || entry.end > data_bytes) {
    refuse(where, str(tensor, " is at bytes ", entry.begin, " to ", entry.end, " of ", data_bytes));
  }
  if (value_bytes(entry) != entry.end - entry.begin) {
    refuse(where, str(tensor, " has ", entry.end - entry.begin, " bytes, not those of ", entry.type, " [",
                      join(entry.shape), "]"));
  }
}

// Every byte of the data belongs to exactly one tensor.
void check_cover(const std::vector<SafetensorsEntry>& tensors, int64_t data_bytes, const std::string& where) {
  int64_t position = 0;
  for (const SafetensorsEntry& entry : tensors) {
    if (entry.begin != position) {
      refuse(where, str("tensor ", shown_name(entry.name), " begins at byte ", entry.begin, ", where ", position,
                        " is due: tensors overlap or leave a gap"));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    refuse(where, str("its tensors end at byte ", position, " of ", data_bytes));
  }
}

}  // namespace

int64_t safetensors_type_bytes(std::string_view type) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& known) { return known.name == type; });
  return found == std::end(kTypes) ? 0 : found->bytes;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& where) {
  if (!json.starts_with('{')) {
    refuse(where, "its header does not begin with '{'");
  }
  SafetensorsHeader header;
  const std::string problem = read_safetensors_json(json, header);
  if (!problem.empty()) {
    refuse(where, problem);
  }
  for (const SafetensorsEntry& entry : header.tensors) {
    check(entry, data_bytes, where);
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_cover(header.tensors, data_bytes, where);
  return header;
}

std::string safetensors_header_text(const SafetensorsHeader& header) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) {
    object[kSafetensorsMetadata] = header.metadata;
  }
  for (const SafetensorsEntry& entry : header.tensors) {
    object[entry.name] = {
        {"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", std::vector<int64_t>{entry.begin, entry.end}}};
  }
  std::string text = object.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace vit_hybrid::train
