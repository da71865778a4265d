// LruCache: values kept by number, of which the least recently used are dropped when there are too many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

namespace vit_hybrid::data {

/// A bounded number of open things (files). Not for several threads at once.
template <class Value>
class LruCache {
 public:
  explicit LruCache(size_t capacity) : capacity_(capacity) {}

  /// The value of `key`, made by make() if it is not kept. It lives as long as the caller holds it; the dropped one, if
  /// nobody holds it, ends before make() is called.
  template <class Make>
  std::shared_ptr<Value> get(int64_t key, Make&& make) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->first == key) {
        entries_.splice(entries_.begin(), entries_, entry);
        return entry->second;
      }
    }
    if (entries_.size() == capacity_) {
      entries_.pop_back();
    }
    entries_.emplace_front(key, make());
    return entries_.front().second;
  }

  /// Calls f(value) for all values kept.
  template <class Function>
  void for_each(Function&& f) {
    for (auto& entry : entries_) {
      f(*entry.second);
    }
  }

 private:
  size_t capacity_;
  std::list<std::pair<int64_t, std::shared_ptr<Value>>> entries_;  // the latest first
};

}  // namespace vit_hybrid::data
