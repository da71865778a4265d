// What becomes of work that cannot be recorded: every kind of exception, and the one warning of a run.
#include <c10/util/Exception.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

#include "src/base/device/device_graph.h"
#include "src/base/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;

namespace {

// Records nothing: what the work throws is that of a recording.
class NoRecorder final : public DeviceRecorder {
 public:
  using DeviceRecorder::DeviceRecorder;
  void make_room() override {}

 private:
  std::unique_ptr<DeviceGraph> try_to_record(const std::function<void()>& work) override {
    work();
    return nullptr;
  }
};

struct Thrower {
  const char* reason;
  std::function<void()> work;
};

const std::vector<Thrower> kThrowers = {
    {"not permitted",
     [] {
       throw c10::Error({"f", "f.cpp", 1}, "not permitted\nC++ stack");
     }},
    {"a defect", [] { throw Error(ErrorClass::kInternal, "a defect", "report it"); }},
    {"no such plan", [] { throw std::runtime_error("no such plan\nadvice"); }},
    {"std::bad_alloc", [] { throw std::bad_alloc(); }},
};

// What warnings print while `work` is done. Not by a log file: the first one that is opened takes what was kept for it.
std::string printed(const std::function<void()>& work) {
  const ScratchFolder folder;
  const int before = ::dup(STDERR_FILENO);
  const int file = ::open(folder.file("stderr").c_str(), O_CREAT | O_WRONLY, 0600);
  ::dup2(file, STDERR_FILENO);
  work();
  ::dup2(before, STDERR_FILENO);
  ::close(file);
  ::close(before);
  std::ifstream in(folder.file("stderr"));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("device graph: work that cannot be recorded, whatever it throws, is done plainly after a warning") {
  for (const Thrower& thrower : kThrowers) {
    CAPTURE(thrower.reason);
    NoRecorder recorder(Unrecordable::kDonePlainly);
    const std::string text = printed([&] {
      for (int again = 0; again < 3; ++again) {
        CHECK(recorder.record(thrower.work) == nullptr);
      }
    });
    CHECK(count(text, std::string("recorded as a CUDA graph: ") + thrower.reason + "; it is started") == 1);
  }
}

TEST_CASE("device graph: the recorders of a run warn once together, those of another run again") {
  const auto warning = std::make_shared<RecordingWarning>();
  NoRecorder of_batches(Unrecordable::kDonePlainly, warning), of_updates(Unrecordable::kDonePlainly, warning);
  NoRecorder of_others(Unrecordable::kDonePlainly);
  const auto work = kThrowers.front().work;
  const std::string together = printed([&] {
    CHECK(of_batches.record(work) == nullptr);
    CHECK(of_updates.record(work) == nullptr);
  });
  CHECK(count(together, "could not be recorded") == 1);
  CHECK(count(printed([&] { CHECK(of_others.record(work) == nullptr); }), "could not be recorded") == 1);
}

TEST_CASE("device graph: a recording that must not fail ends the run with its reason, or with what memory it lacks") {
  for (const Thrower& thrower : kThrowers) {
    CAPTURE(thrower.reason);
    NoRecorder recorder(Unrecordable::kRefused);
    if (std::string(thrower.reason) == "std::bad_alloc") {
      CHECK_THROWS_AS(recorder.record(thrower.work), std::bad_alloc);
      continue;
    }
    const Error error = thrown_error([&] { recorder.record(thrower.work); });
    CHECK(error.error_class() == ErrorClass::kInternal);
    CHECK(error.message() == std::string("the step could not be recorded as a CUDA graph: ") + thrower.reason);
    CHECK(error.hint() == "--cuda-graph off trains without");
  }
  NoRecorder recorder(Unrecordable::kRefused);
  CHECK_THROWS_AS(recorder.record([] {
    throw c10::OutOfMemoryError({"f", "f.cpp", 1}, "no more");
  }),
                  c10::OutOfMemoryError);
}
