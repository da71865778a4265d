// The errors of the program: what a user can mend (Error, with a class and exit code) and broken invariants
// (VH_ASSERT).
#pragma once

#include <stdexcept>
#include <string>

namespace vit_hybrid {

/// Class of a user-visible error; the value is the exit code of the program (the codes of BSD's sysexits.h).
enum class ErrorClass : int {
  kUsage = 64,         ///< wrong option, key, degree or combination
  kBadData = 65,       ///< a file's content is not what it must be
  kMissingInput = 66,  ///< a file or folder that must be read is not there
  kInternal = 70,      ///< a broken invariant: a defect of this program
  kCannotCreate = 73,  ///< a file or folder cannot be created
  kIo = 74,            ///< reading, writing or communicating failed
  kTemporary = 75,     ///< stopped for now; the same command may be given again
};

/// An error that ends the program with one message and the exit code of its class.
class Error : public std::runtime_error {
 public:
  /// `message` says what, where, the value and what is allowed; `hint` says what to do (may be empty).
  Error(ErrorClass error_class, std::string message, std::string hint = {});

  ErrorClass error_class() const { return error_class_; }
  int exit_code() const { return static_cast<int>(error_class_); }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }

 private:
  ErrorClass error_class_;
  std::string message_;
  std::string hint_;
};

/// Throws Error(kInternal) that names the broken condition and its place.
[[noreturn]] void fail_invariant(const char* condition, const char* file, int line, const std::string& detail);

}  // namespace vit_hybrid

/// Checks an invariant in every build type; the condition must have no side effect. The rest is a message for str().
#define VH_ASSERT(condition, detail)                                          \
  do {                                                                        \
    if (!(condition)) {                                                       \
      ::vit_hybrid::fail_invariant(#condition, __FILE__, __LINE__, (detail)); \
    }                                                                         \
  } while (false)
