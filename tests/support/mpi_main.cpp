// doctest's main for multi-rank programs: failures carry their rank. The ranks meet after each case; one that leaves a
// case early (an exception, a REQUIRE) ends the whole job, as the others may wait for it. Cases of the test suite
// "one rank" are left out where there are more. With --duration=true rank 0 says a line a case, "0.25 s: name", at
// once: where the program is ended, what it has done is known.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS  // its handlers would call MPI from inside a signal
#include <doctest/doctest.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/support/mpi_test.h"

namespace {

using vit_hybrid::testing::world_rank;
using vit_hybrid::testing::world_size;

constexpr int kExitSkipped = 77;
constexpr int kExitHanging = 124;
constexpr unsigned kDefaultCaseSeconds = 240;

std::string rank_prefix() {
  return "[rank " + std::to_string(world_rank()) + "/" + std::to_string(world_size()) + "] ";
}

/// Prints the text, each line with this rank before it, in one write: lines of different ranks do not mix.
void print_with_rank(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    out += rank_prefix() + line + "\n";
  }
  std::fputs(out.c_str(), stderr);
  std::fflush(stderr);
}

/// A text that a signal handler may read.
struct SignalText {
  std::array<char, 512> chars{};
  std::size_t size = 0;

  void set(const std::string& text) { size = text.copy(chars.data(), chars.size()); }
  void print() const { [[maybe_unused]] const auto written = write(STDERR_FILENO, chars.data(), size); }
};

/// Names the test case on the terminal when it hangs (after its time) or dies of a signal; either ends the job.
class CaseWatch {
 public:
  CaseWatch() {
    const char* seconds = std::getenv("VIT_HYBRID_TEST_CASE_SECONDS");
    seconds_ = seconds != nullptr ? static_cast<unsigned>(std::atoi(seconds)) : kDefaultCaseSeconds;
    for (const int signal : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      std::signal(signal, &CaseWatch::on_signal);
    }
  }

  void start(const std::string& case_name) {
    const std::string in_case = rank_prefix() + "in \"" + case_name + "\": ";
    hang_text_.set(in_case + "still running after " + std::to_string(seconds_) + " s, it hangs\n");
    death_text_.set(in_case + "killed by a signal (segmentation fault, abort or the like)\n");
    alarm(seconds_);
  }

  void stop() { alarm(0); }

 private:
  // Calls only what a signal handler may call.
  static void on_signal(int signal) {
    if (signal == SIGALRM) {
      hang_text_.print();
      _exit(kExitHanging);
    }
    death_text_.print();
    std::signal(signal, SIG_DFL);
    raise(signal);
  }

  static inline SignalText hang_text_;
  static inline SignalText death_text_;
  unsigned seconds_ = 0;
};

/// What the rank is told about an assertion that failed.
std::string describe(const doctest::AssertData& data) {
  std::ostringstream out;
  out << data.m_file << ":" << data.m_line << ": " << doctest::failureString(data.m_at) << ": "
      << doctest::assertString(data.m_at) << "( " << data.m_expr << " )";
  if (data.m_threw) {
    out << " threw: " << data.m_exception.c_str();
  } else if ((data.m_at & doctest::assertType::is_normal) != 0) {
    out << "  values: " << data.m_decomp.c_str();
  } else {
    out << " did not throw what it should";
  }
  return out.str();
}

class MpiReporter : public doctest::IReporter {
 public:
  explicit MpiReporter(const doctest::ContextOptions& options) : options_(options) {
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}

  void test_run_end(const doctest::TestRunStats& stats) override {
    MPI_Comm_free(&ranks_);
    if (world_rank() == 0) {
      std::printf("%d ranks: %u test cases passed, %s%d assertions on rank 0\n", world_size(),
                  stats.numTestCasesPassingFilters - num_failed_,
                  num_failed_ > 0 ? (std::to_string(num_failed_) + " FAILED, ").c_str() : "", stats.numAsserts);
      std::fflush(stdout);
    }
  }

  void test_case_start(const doctest::TestCaseData& data) override {
    case_ = &data;
    subcases_.clear();
    left_early_ = false;
    watch_.start(data.m_name);
  }

  void test_case_reenter(const doctest::TestCaseData&) override {}

  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    int failed = stats.testCaseSuccess ? 0 : 1;
    if (failed != 0) {
      print_with_rank("test case \"" + std::string(case_->m_name) + "\" failed");
      if (left_early_ && world_size() > 1) {
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
      }
    }
    // On a communicator of its own, so that it cannot be mistaken for a collective call of a case.
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, ranks_);
    num_failed_ += static_cast<unsigned>(failed);
    watch_.stop();
    if (options_.duration && world_rank() == 0) {
      std::printf("%.2f s: %s\n", stats.seconds, case_->m_name);
      std::fflush(stdout);
    }
  }

  void test_case_exception(const doctest::TestCaseException& exception) override {
    left_early_ = true;
    print_with_rank(location() + "unexpected exception: " + exception.error_string.c_str());
  }

  void subcase_start(const doctest::SubcaseSignature& signature) override {
    subcases_ += std::string(" / ") + signature.m_name.c_str();
  }

  void subcase_end() override { subcases_.resize(std::min(subcases_.size(), subcases_.rfind(" / "))); }

  void log_assert(const doctest::AssertData& data) override {
    if (data.m_failed) {
      left_early_ |= (data.m_at & doctest::assertType::is_require) != 0;
      print_with_rank(location() + describe(data) + contexts());
    }
  }

  void log_message(const doctest::MessageData& data) override {
    const bool is_failure = (data.m_severity & doctest::assertType::is_warn) == 0;
    left_early_ |= (data.m_severity & doctest::assertType::is_require) != 0;
    if (is_failure || world_rank() == 0) {
      print_with_rank(std::string(data.m_file) + ":" + std::to_string(data.m_line) + ": " +
                      (is_failure ? doctest::failureString(data.m_severity) : "MESSAGE") + ": " +
                      data.m_string.c_str());
    }
  }

  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  std::string location() const { return std::string("in \"") + case_->m_name + subcases_ + "\":\n"; }

  /// What the test told with INFO() and CAPTURE().
  static std::string contexts() {
    std::ostringstream out;
    const auto* scopes = get_active_contexts();
    for (int i = 0; i < get_num_active_contexts(); ++i) {
      out << "\n  with ";
      scopes[i]->stringify(&out);
    }
    return out.str();
  }

  const doctest::ContextOptions& options_;
  const doctest::TestCaseData* case_ = nullptr;
  std::string subcases_;
  bool left_early_ = false;  // the case, on this rank
  unsigned num_failed_ = 0;  // cases, on any rank
  CaseWatch watch_;
  MPI_Comm ranks_ = MPI_COMM_NULL;
};

REGISTER_REPORTER("mpi", 1, MpiReporter);

/// Whether the command line only asks something of doctest (help, version, lists, counts).
bool is_query(int argc, char** argv) {
  constexpr std::array<std::string_view, 8> kShort = {"-h", "-?", "-v", "-c", "-l", "-ltc", "-lts", "-lr"};
  constexpr std::array<std::string_view, 4> kLong = {"--help", "--version", "--count", "--list"};
  return std::any_of(argv + 1, argv + argc, [&](std::string_view word) {
    const auto begins_word = [word](std::string_view query) { return word.substr(0, query.size()) == query; };
    return std::find(kShort.begin(), kShort.end(), word) != kShort.end() ||
           std::any_of(kLong.begin(), kLong.end(), begins_word);
  });
}

int run_tests(int argc, char** argv) {
  doctest::Context context(argc, argv);
  if (!is_query(argc, argv)) {
    context.setOption("reporters", "mpi");
    if (world_size() > 1) {
      context.addFilter("test-suite-exclude", "one rank");
    }
  } else if (world_rank() != 0) {
    return EXIT_SUCCESS;
  }
  return context.run();
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);  // for tests of MessageThread
  const std::string reason = is_query(argc, argv) ? std::string() : vit_hybrid::testing::reason_to_skip();
  if (!reason.empty()) {
    if (world_rank() == 0) {
      std::printf("[skipped] %s\n", reason.c_str());
    }
    MPI_Finalize();
    return kExitSkipped;
  }
  const int result = run_tests(argc, argv);
  MPI_Finalize();
  return result;
}
