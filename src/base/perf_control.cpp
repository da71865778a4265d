// The protocol of perf's --control: a line "enable" or "disable" into one FIFO, then "ack" out of the other.
#include "src/base/perf_control.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/base/utf8.h"

namespace vit_hybrid {

namespace {

constexpr const char* kVariable = "PERF_RECORD_CONTROL";

// An end of a FIFO, which never blocks; -1 and a reason where it cannot be had.
class Fifo {
 public:
  Fifo(const std::string& path, int access) : file_(open(path.c_str(), access | O_NONBLOCK | O_CLOEXEC)) {
    struct stat status = {};
    if (file_ < 0) {
      problem_ = errno == ENXIO ? "perf has ended" : str("'", shown(path), "' cannot be opened: ", reason(errno));
    } else if (fstat(file_, &status) != 0 || !S_ISFIFO(status.st_mode)) {
      problem_ = str("'", shown(path), "' of ", kVariable, " is no FIFO");
    }
  }
  ~Fifo() {
    if (file_ >= 0) close(file_);
  }
  Fifo(const Fifo&) = delete;
  Fifo& operator=(const Fifo&) = delete;

  int file() const { return file_; }
  const std::string& problem() const { return problem_; }

  // What is there to read now.
  std::string text() const {
    std::array<char, 64> buffer{};
    std::string all;
    for (ssize_t count = 0; (count = read(file_, buffer.data(), buffer.size())) > 0;) {
      all.append(buffer.data(), static_cast<size_t>(count));
    }
    return all;
  }

 private:
  int file_;
  std::string problem_;
};

// Waits for "ack" and its newline.
std::string await_answer(const Fifo& answers, double patience) {
  const Timer timer;
  std::string text;
  while (timer.seconds() < patience) {
    pollfd waited{answers.file(), POLLIN, 0};
    poll(&waited, 1, static_cast<int>((patience - timer.seconds()) * 1e3) + 1);
    text += answers.text();
    if (text.find("ack\n") != std::string::npos) return {};
    if ((waited.revents & POLLHUP) != 0) return "perf has ended";
  }
  return str("perf does not answer (for ", fixed_text(patience, 1), " s)");
}

}  // namespace

PerfControl::PerfControl(std::string commands, std::string answers)
    : commands_(std::move(commands)), answers_(std::move(answers)) {}

std::optional<PerfControl> PerfControl::of_environment() {
  constexpr std::string_view kHead = "fifo:";
  const char* const value = std::getenv(kVariable);
  if (value == nullptr) return std::nullopt;
  const std::string_view text(value);
  const size_t comma = text.find(',');
  if (!text.starts_with(kHead) || comma == std::string_view::npos || comma == kHead.size() ||
      comma + 1 == text.size()) {
    throw Error(ErrorClass::kUsage, str("the variable ", kVariable, " is '", shown(std::string(text)), "'"),
                "it is fifo:COMMANDS,ANSWERS, as the --control of the perf record that runs the program");
  }
  return PerfControl(std::string(text.substr(kHead.size(), comma - kHead.size())), std::string(text.substr(comma + 1)));
}

std::string PerfControl::enable(double patience) {
  return ask("enable\n", patience);
}

std::string PerfControl::disable(double patience) {
  return ask("disable\n", answers_in_time_ ? patience : 0.0);
}

std::string PerfControl::ask(const std::string& command, double patience) {
  const Fifo answers(answers_, O_RDONLY);
  if (!answers.problem().empty()) return answers.problem();
  answers.text();                          // late ones
  const Fifo reader(commands_, O_WRONLY);  // fails where nobody reads
  if (!reader.problem().empty()) return reader.problem();
  // Being a reader too, this process gets no SIGPIPE when perf ends meanwhile.
  const Fifo commands(commands_, O_RDWR);
  if (!commands.problem().empty()) return commands.problem();
  if (write(commands.file(), command.data(), command.size()) != std::ssize(command)) {
    return str("perf takes no commands: ", reason(errno));
  }
  if (patience <= 0) return {};
  std::string problem = await_answer(answers, patience);
  answers_in_time_ = problem.empty();
  return problem;
}

}  // namespace vit_hybrid
