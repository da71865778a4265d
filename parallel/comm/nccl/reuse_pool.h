// ReusePool: objects that are dear to make, lent and used again.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

namespace vit_hybrid::comm {

/// For objects as the events of a device. Used by one thread at a time.
template <class T>
class ReusePool {
 public:
  explicit ReusePool(std::function<std::shared_ptr<T>()> make) : make_(std::move(make)) {}

  /// One that nobody else holds; a new one where all are lent.
  std::shared_ptr<T> take() {
    // They come back about in the order in which they were lent: the first is free where any is, nearly always.
    for (size_t i = 0; i < items_.size(); ++i) {
      items_.push_back(std::move(items_.front()));
      items_.pop_front();
      if (items_.back().use_count() == 1) return items_.back();
    }
    items_.push_back(make_());
    return items_.back();
  }

  /// How many there are.
  size_t size() const { return items_.size(); }

 private:
  std::function<std::shared_ptr<T>()> make_;
  std::deque<std::shared_ptr<T>> items_;  // the one that was lent longest ago first
};

}  // namespace vit_hybrid::comm
