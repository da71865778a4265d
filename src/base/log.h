// Log: the program's own text, from one rank, to the terminal and to the run's out.log. What files and users have put
// into a text does nothing to a terminal: it is printable() (utf8.h).
#pragma once

#include <string>

namespace vit_hybrid {

/// Says whether this process is the one that prints; it is until told otherwise. To be called before anything is
/// logged.
void set_log_speaker(bool speaks);
bool is_log_speaker();

/// Prints a line (or several) to standard output and out.log. Silent on processes that do not speak.
void log_line(const std::string& text);

/// Prints "vit_hybrid: warning: <text>" to standard error and out.log. Silent on processes that do not speak.
void log_warning(const std::string& text);

/// Writes a line to out.log only: what somebody else prints.
void log_to_file(const std::string& text);

/// Shows `text`, or as much of it as fits into one line of the terminal, in its last line until the next line is
/// printed or shown. Nothing happens where standard output and error are not both a terminal; out.log never sees it.
void show_progress(const std::string& text);
/// Whether show_progress() shows anything.
bool shows_progress();

/// The beginning of `text` that takes at most `columns` of a terminal, so that its line does not wrap. Characters
/// beyond ASCII count as two columns, as the widest are; control characters become '?'. Pure.
std::string fitted_text(const std::string& text, int columns);

/// What a file that is there already is taken for: an error, since a job that has lost its folder to another must not
/// empty the other's file; or the beginning.
enum class OldFile { kRefuse, kAppend };

/// Starts out.log at `path` with all that was logged before. Throws Error(kCannotCreate), Error(kBadData) where it is
/// no regular file, and as require_folders() does. Does nothing on processes that do not speak. It ends when the folder
/// is another job's (holds_folders()).
void open_log_file(const std::string& path, OldFile old_file = OldFile::kRefuse);

/// Ends out.log; what is logged later goes to the terminal only.
void close_log_file();

}  // namespace vit_hybrid
