// What the decoders of C libraries have in common: stages between setjmp and longjmp, and the message of a bad file.
#pragma once

#include <csetjmp>
#include <string>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

/// Calls `stage(session)`; false if it jumped to session.jump. What the jump passes over must have nothing to destroy.
template <class Session>
bool succeeds(Session& session, void (*stage)(Session&)) {
  if (setjmp(session.jump) != 0) {
    return false;
  }
  stage(session);
  return true;
}

/// `kind`: "JPEG", "PNG".
[[noreturn]] inline void refuse_image(const std::string& path, const char* kind, const std::string& why) {
  throw Error(ErrorClass::kBadData, str(path, " is a damaged or unknown ", kind, " file: ", why),
              "replace or remove it, or leave such files out with --skip-bad");
}

}  // namespace vit_hybrid::data
