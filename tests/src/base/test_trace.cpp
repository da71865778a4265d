// Trace: what is recorded and what is not, the bound, and what slices are called.
#include <doctest/doctest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

#include "src/base/trace.h"

using namespace vit_hybrid;
using trace::Event;
using trace::Kind;

TEST_CASE("trace: slices are recorded between start and end, in the order in which they end, from any thread") {
  const Event outer{.kind = Kind::kStep, .name = "step", .step = 3};
  {
    const trace::Scope before(outer);
    CHECK(!trace::is_heard());
  }
  trace::start_recording(8);
  CHECK(trace::is_recording());
  {
    const trace::Scope slice(outer);
    const trace::Scope inner({.name = "forward", .micro_batch = 1, .stage = 2});
    std::thread([] { const trace::Scope read({.kind = Kind::kRead, .name = "read"}); }).join();
  }
  std::optional<trace::Scope> open;
  open.emplace(outer);
  const trace::Recording recording = trace::stop_recording();
  open.reset();
  { const trace::Scope after(outer); }

  CHECK(recording.num_dropped == 0);
  REQUIRE(recording.events.size() == 3);
  const auto& [read, forward, step] = std::tie(recording.events[0], recording.events[1], recording.events[2]);
  CHECK(read.kind == Kind::kRead);
  CHECK(std::string(forward.name) == "forward");
  CHECK(forward.stage == 2);
  CHECK(step.step == 3);
  CHECK(step.begin <= forward.begin);
  CHECK(forward.begin <= read.begin);
  CHECK(read.begin <= read.end);
  CHECK(forward.end <= step.end);
  trace::start_recording(8);  // the one that was open and the one after are not in another recording either
  CHECK(trace::stop_recording().events.empty());
}

TEST_CASE("trace: steps and phases are slices of the GPU, too, from mark to mark") {
  struct Mark : trace::DeviceMark {
    explicit Mark(int64_t time) : time_(time) {}
    int64_t time() const override { return time_; }
    int64_t time_;
  };
  int64_t marks = 0;
  const auto make = [&]() -> std::unique_ptr<trace::DeviceMark> {
    ++marks;
    return marks == 6 ? nullptr : std::make_unique<Mark>(100 * marks);
  };
  trace::start_recording(6, make);
  {
    const trace::Scope step({.kind = Kind::kStep, .name = "step", .step = 1});                            // mark 1
    { const trace::Scope forward({.name = "forward", .micro_batch = 0}); }                                // 2 and 3
    { const trace::Scope wait({.kind = Kind::kWait, .name = "all_reduce"}); }                             // none
    trace::add_on_device({.kind = Kind::kOperation, .name = "all_reduce"}, make(), nullptr);              // 4: no slice
    trace::add_on_device({.kind = Kind::kOperation, .name = "send"}, make(), std::make_unique<Mark>(7));  // 5
  }  // 6: cannot be made
  { const trace::Scope one_too_many({.name = "backward"}); }
  const trace::Recording recording = trace::stop_recording();
  REQUIRE(recording.events.size() == 6);
  CHECK(recording.num_dropped == 1);
  CHECK(
      std::none_of(recording.events.begin(), recording.events.begin() + 4, [](const Event& e) { return e.on_device; }));
  const Event &forward = recording.events[4], &send = recording.events[5];
  CHECK(forward.on_device);
  CHECK(std::string(forward.name) == "forward");
  CHECK(forward.begin == 200);
  CHECK(forward.end == 300);
  CHECK(std::string(send.name) == "send");
  CHECK(send.begin == 500);
  CHECK(send.end == 7);
  trace::start_recording(6);
  { const trace::Scope step({.kind = Kind::kStep, .name = "step"}); }
  CHECK(trace::stop_recording().events.size() == 1);
  CHECK(marks == 8);
}

TEST_CASE("trace: no more is kept than was asked for, the first ones, and the rest is counted") {
  trace::start_recording(2);
  for (int i = 0; i < 5; ++i) {
    trace::add({.name = "x", .step = i});
  }
  const trace::Recording recording = trace::stop_recording();
  REQUIRE(recording.events.size() == 2);
  CHECK(recording.events[1].step == 1);
  CHECK(recording.num_dropped == 3);
}

TEST_CASE("trace: threads are called what they are in the middle of, and what they were called before") {
  const auto own_name = [] {
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    return std::string(name.data());
  };
  const std::string before = own_name();
  const trace::Scope unheard({.name = "unheard"});
  CHECK(own_name() == before);
  trace::start_naming_threads();
  {
    const trace::Scope outer({.name = "gradient reduction"});
    CHECK(own_name() == "gradient reduct");
    {
      const trace::Scope wait({.kind = Kind::kWait, .name = "all_reduce", .axis = "data"});
      CHECK(own_name() == "gradient reduct");
      const trace::Scope inner({.name = "forward"});
      CHECK(own_name() == "forward");
    }
    CHECK(own_name() == "gradient reduct");
    trace::stop_naming_threads();
  }
  CHECK(own_name() == before);
}

TEST_CASE("trace: names of slices, and texts that last") {
  CHECK(trace::slice_name({.kind = Kind::kStep, .name = "step", .step = 12}) == "step 12");
  CHECK(trace::slice_name({.name = "forward", .micro_batch = 0}) == "forward mb 0");
  CHECK(trace::slice_name({.kind = Kind::kOperation, .name = "all_reduce", .axis = "data"}) == "all_reduce data");
  CHECK(trace::slice_name({.kind = Kind::kWait, .name = "all_reduce", .axis = "data"}) == "wait all_reduce data");
  const char* kept = nullptr;
  {
    const std::string text = "a text that is gone soon";
    kept = trace::lasting(text);
    CHECK(kept != text.c_str());
  }
  CHECK(std::string(kept) == "a text that is gone soon");
  CHECK(trace::lasting("a text that is gone soon") == kept);
}
