// SocketMesh: connections of each process of a group with each other one of it, on one machine, that can be aborted.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace vit_hybrid::testing {

/// What one rank sends to, or receives from, another. Both name it the same.
struct Message {
  int peer;
  const char* name;
  std::byte* data;
  size_t bytes;
};

class SocketMesh {
 public:
  /// The ranks of a group find each other by `name`.
  SocketMesh(std::string name, int rank, int size);
  ~SocketMesh();
  SocketMesh(const SocketMesh&) = delete;
  SocketMesh& operator=(const SocketMesh&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// False where it was aborted before all ranks had come. Called by all of them.
  bool connect();
  enum class Moved { kAll, kPeerIsGone, kMismatch };
  /// All messages at once, those of one pair and direction in their order. Reports a fault where name or size of one is
  /// not what the other rank means. By one thread at a time.
  Moved move(const std::vector<Message>& sent, const std::vector<Message>& received);
  /// Ends connect(), move() and wait_for_abort(), now and later. From any thread.
  void abort();
  void wait_for_abort() const { is_aborted_.wait(false); }

  /// Cuts the connections of all that this process has, as when its machine goes.
  static void cut_all();

 private:
  void keep(int peer, int socket);
  void cut();

  std::string name_;
  int rank_;
  int size_;
  std::atomic<bool> is_aborted_ = false;
  std::mutex mutex_;          // of what follows, while it is connected
  std::vector<int> sockets_;  // by peer; -1 for none
};

}  // namespace vit_hybrid::testing
