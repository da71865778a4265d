// Sockets by abstract names (man 7 unix), and messages in pieces as the sockets take them.
#include "tests/parallel/comm/nccl/fake_socket_mesh.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "src/base/text.h"
#include "tests/parallel/comm/nccl/fake_device.h"

namespace vit_hybrid::testing {

namespace {

constexpr std::chrono::milliseconds kPause{1};
constexpr int kPatienceMilliseconds = 10;  // between looks whether it was aborted

struct Meshes {
  std::mutex mutex;
  std::set<SocketMesh*> all;
};

Meshes& meshes() {
  static auto* const instance = new Meshes;
  return *instance;
}

struct Address {
  sockaddr_un name{};
  socklen_t size;

  Address(const std::string& group, int rank) {
    const std::string text = str("vit_hybrid_fake_nccl.", group, ".", rank);
    name.sun_family = AF_UNIX;
    text.copy(name.sun_path + 1, sizeof name.sun_path - 1);  // a first zero makes it abstract
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

int new_socket() {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

// What goes before the bytes of a message.
struct Header {
  std::array<char, 24> name{};
  uint64_t bytes = 0;

  bool operator==(const Header&) const = default;
};

// A message on its way.
class Transfer {
 public:
  enum class State { kGoesOn, kDone, kBroken, kMismatch };

  Transfer(const Message& message, bool sends) : message_(message), sends_(sends) {
    std::strncpy(expected_.name.data(), message.name, expected_.name.size() - 1);
    expected_.bytes = message.bytes;
    if (sends) header_ = expected_;
  }

  // As far as it goes without waiting.
  State advance(int socket) {
    constexpr size_t kHead = sizeof(Header);
    while (done_ < kHead + message_.bytes) {
      const bool is_head = done_ < kHead;
      auto* const place = is_head ? reinterpret_cast<std::byte*>(&header_) + done_ : message_.data + (done_ - kHead);
      const size_t left = (is_head ? kHead : kHead + message_.bytes) - done_;
      const ssize_t moved =
          sends_ ? send(socket, place, left, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(socket, place, left, MSG_DONTWAIT);
      if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return State::kGoesOn;
      if (moved <= 0) return State::kBroken;
      done_ += static_cast<size_t>(moved);
      if (done_ == kHead && header_ != expected_) return State::kMismatch;
    }
    return State::kDone;
  }

  std::string mismatch() const {
    return str(expected_.name.data(), " of ", expected_.bytes, " bytes meets ", header_.name.data(), " of ",
               header_.bytes, " bytes of rank ", message_.peer);
  }

 private:
  Message message_;
  bool sends_;
  Header expected_;
  Header header_;
  size_t done_ = 0;
};

// With one peer.
struct Traffic {
  std::deque<Transfer> sent;
  std::deque<Transfer> received;

  pollfd event(int socket) const {
    return {socket, static_cast<short>((sent.empty() ? 0 : POLLOUT) | (received.empty() ? 0 : POLLIN)), 0};
  }
  Transfer::State advance(int socket) {
    for (auto* queue : {&sent, &received}) {
      while (!queue->empty()) {
        const auto state = queue->front().advance(socket);
        if (state == Transfer::State::kMismatch) report_fault(queue->front().mismatch());
        if (state == Transfer::State::kBroken || state == Transfer::State::kMismatch) return state;
        if (state == Transfer::State::kGoesOn) break;
        queue->pop_front();
      }
    }
    return sent.empty() && received.empty() ? Transfer::State::kDone : Transfer::State::kGoesOn;
  }
};

}  // namespace

SocketMesh::SocketMesh(std::string name, int rank, int size)
    : name_(std::move(name)), rank_(rank), size_(size), sockets_(static_cast<size_t>(size), -1) {
  const std::lock_guard lock(meshes().mutex);
  meshes().all.insert(this);
}

SocketMesh::~SocketMesh() {
  const std::lock_guard lock(meshes().mutex);
  meshes().all.erase(this);
  for (const int socket : sockets_)
    close(socket);
}

void SocketMesh::keep(int peer, int socket) {
  const std::lock_guard lock(mutex_);
  sockets_[static_cast<size_t>(peer)] = socket;
  if (is_aborted_) shutdown(socket, SHUT_RDWR);
}

// To every lower rank, once that listens; from every higher one.
bool SocketMesh::connect() {
  const Address own(name_, rank_);
  const int listener = new_socket();
  if (bind(listener, own.get(), own.size) != 0 || listen(listener, size_) != 0) return false;
  int peer = 0;
  while (peer < rank_ && !is_aborted_) {
    const Address address(name_, peer);
    const int socket = new_socket();
    if (::connect(socket, address.get(), address.size) == 0 && send(socket, &rank_, sizeof rank_, 0) > 0) {
      keep(peer++, socket);
    } else {
      close(socket);
      std::this_thread::sleep_for(kPause);
    }
  }
  for (int missing = size_ - 1 - rank_; missing > 0 && !is_aborted_;) {
    pollfd event{listener, POLLIN, 0};
    if (poll(&event, 1, kPatienceMilliseconds) <= 0) continue;
    const int socket = accept(listener, nullptr, nullptr);
    if (recv(socket, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) return false;
    keep(peer, socket);
    --missing;
  }
  close(listener);
  return !is_aborted_;
}

SocketMesh::Moved SocketMesh::move(const std::vector<Message>& sent, const std::vector<Message>& received) {
  std::map<int, Traffic> open;  // by peer
  for (const Message& message : sent)
    open[message.peer].sent.emplace_back(message, true);
  for (const Message& message : received)
    open[message.peer].received.emplace_back(message, false);
  while (!open.empty()) {
    std::vector<pollfd> events;
    for (const auto& [peer, traffic] : open)
      events.push_back(traffic.event(sockets_[static_cast<size_t>(peer)]));
    poll(events.data(), events.size(), -1);  // ends when the sockets are shut down, too
    auto event = events.begin();
    for (auto at = open.begin(); at != open.end(); ++event) {
      const auto state = event->revents == 0 ? Transfer::State::kGoesOn : at->second.advance(event->fd);
      if (state == Transfer::State::kBroken) return Moved::kPeerIsGone;
      if (state == Transfer::State::kMismatch) return Moved::kMismatch;
      at = state == Transfer::State::kDone ? open.erase(at) : std::next(at);
    }
  }
  return Moved::kAll;
}

void SocketMesh::cut() {
  const std::lock_guard lock(mutex_);
  for (const int socket : sockets_)
    shutdown(socket, SHUT_RDWR);
}

void SocketMesh::abort() {
  is_aborted_ = true;
  is_aborted_.notify_all();
  cut();
}

void SocketMesh::cut_all() {
  const std::lock_guard lock(meshes().mutex);
  for (SocketMesh* mesh : meshes().all)
    mesh->cut();
}

}  // namespace vit_hybrid::testing
