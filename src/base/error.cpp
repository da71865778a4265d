// The errors of the program: construction of their texts.
#include "src/base/error.h"

#include <utility>

namespace vit_hybrid {

namespace {
std::string whole_text(const std::string& message, const std::string& hint) {
  return hint.empty() ? message : message + "; " + hint;
}
}  // namespace

Error::Error(ErrorClass error_class, std::string message, std::string hint)
    : std::runtime_error(whole_text(message, hint)),
      error_class_(error_class),
      message_(std::move(message)),
      hint_(std::move(hint)) {}

void fail_invariant(const char* condition, const char* file, int line, const std::string& detail) {
  throw Error(ErrorClass::kInternal,
              std::string("broken invariant ") + condition + " at " + file + ":" + std::to_string(line) + ": " + detail,
              "this is a defect of the program, please report it");
}

}  // namespace vit_hybrid
