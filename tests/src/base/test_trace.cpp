// Trace: what is recorded and what is not, the bound, and what slices are called.
#include <doctest/doctest.h>
#include <pthread.h>

#include <array>
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
