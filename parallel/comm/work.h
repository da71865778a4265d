// Work: a communication in flight, which owns its tensors until it is waited for.
#pragma once

#include <memory>

namespace vit_hybrid::comm {

/// Handle of one operation in flight. Move-only. It keeps the operation's tensors alive; they must
/// not be touched before wait() returns. Every Work must be waited for before it is destroyed (an
/// invariant: breaking it ends the program), except while an exception unwinds the stack.
class [[nodiscard]] Work {
 public:
  /// What a back end implements: its requests or events, and the tensors in flight.
  class State {
   public:
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    virtual ~State() = default;
    /// Returns when later work on the caller's stream (or the host, for host tensors) sees the
    /// result.
    virtual void wait() = 0;
    /// Makes progress; true if the operation is complete (then wait() does not block).
    virtual bool test() = 0;
    /// Nobody will wait any more (an exception unwinds). The state is leaked afterwards, because
    /// the operation may still write into its tensors.
    virtual void abandon() noexcept {}
  };

  /// An operation that is already complete.
  Work() = default;
  explicit Work(std::unique_ptr<State> state);
  Work(Work&& other) noexcept = default;
  /// The target must be complete.
  Work& operator=(Work&& other) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

  /// Completes the operation; a second call returns at once. Host back ends make progress on all
  /// operations of the process meanwhile.
  void wait();
  /// Makes progress without blocking; true if complete.
  bool test();
  bool complete() const { return state_ == nullptr; }

 private:
  // Memory that may still be written to must not be freed.
  void leak() noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace vit_hybrid::comm
