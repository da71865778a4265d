// The folder that a generator is about to fill: what may be there, whether there is room, and its creation.
#include "data/generate/output_folder.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "data/datasets/year_files.h"
#include "data/tools/tool_files.h"
#include "data/zarr/zarr_writer.h"
#include "src/base/files.h"

namespace vit_hybrid::data {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_output(std::string message, std::string hint) {
  throw Error(ErrorClass::kCannotCreate, std::move(message), std::move(hint));
}

/// The subfolders of the planned files and stores, each once.
std::set<fs::path> subfolders(const PlannedOutput& output) {
  std::set<fs::path> folders;
  for (const std::string& file : output.files) {
    folders.insert((fs::path(output.folder) / file).parent_path());
  }
  for (const PlannedStore& store : output.stores) {
    folders.insert((fs::path(output.folder) / store.name).parent_path());
  }
  return folders;
}

/// What of a planned store is nothing without the store's metadata: folders, chunks, and those of its arrays.
bool is_left_of_store(const PlannedOutput& output, const fs::directory_entry& entry) {
  return std::any_of(output.stores.begin(), output.stores.end(), [&](const PlannedStore& store) {
    const fs::path root = fs::path(output.folder) / store.name;
    if (entry.path() == root) {
      return fs::is_directory(entry.symlink_status());
    }
    const std::string begin = root.string() + "/";
    const std::string path = entry.path().string();
    if (!path.starts_with(begin)) {
      return false;
    }
    const std::string name = path.substr(begin.size());
    return fs::is_directory(entry.symlink_status()) || is_chunk_of(store.arrays, name) ||
           is_unfinished_metadata(store.arrays, root.string(), name);
  });
}

/// Whether something else is there than a killed attempt at the same files leaves: subfolders and unfinished files.
bool has_content(const PlannedOutput& output) {
  const std::set<fs::path> folders = subfolders(output);
  std::set<fs::path> files;
  for (const std::string& file : output.files) {
    files.insert(fs::path(output.folder) / file);
  }
  std::error_code error;
  for (fs::recursive_directory_iterator entry(output.folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const bool is_nothing = folders.contains(entry->path()) || files.contains(completed_name(entry->path().string())) ||
                            is_left_of_store(output, *entry) ||
                            (entry.depth() == 0 && FolderLock::is_lock_file(entry->path().filename().string()));
    if (!is_nothing || entry->is_symlink(error)) {
      return true;
    }
  }
  return static_cast<bool>(error);
}

/// Nothing is ever deleted but metadata, and chunks are replaced by chunks: an old store has nothing else.
void check_old_store(const PlannedOutput& output, const PlannedStore& store) {
  const std::string root = (fs::path(output.folder) / store.name).string();
  std::error_code error;
  const fs::file_status there = fs::symlink_status(root, error);
  if (!fs::exists(there)) return;
  if (!fs::is_directory(there)) {
    refuse_output(str(root, " is there and is no folder"), "remove it, or give another folder");
  }
  if (const std::string name = foreign_entry(store.arrays, root); !name.empty()) {
    refuse_output(str("the store ", root, " also has ", name, ", which would not be replaced"),
                  "remove the store, or give another folder");
  }
}

void check_folder(const PlannedOutput& output) {
  std::error_code ignored;
  if (output.folder.empty()) throw Error(ErrorClass::kUsage, "no output folder is given", "give one with --out DIR");
  if (!fs::exists(output.folder, ignored)) return;
  if (!fs::is_directory(output.folder, ignored)) {
    refuse_output(str(output.folder, " is a file, a folder is needed"), "give another one");
  }
  if (output.existing == ExistingFiles::kRefuse && has_content(output)) {
    refuse_output(str("the folder ", output.folder, " is not empty"),
                  "give another one, or --overwrite to replace the files of a data set in it");
  }
  for (const std::string& file : output.files) {
    refuse_existing((fs::path(output.folder) / file).string(), /*overwrite=*/true);
  }
  for (const PlannedStore& store : output.stores) {
    check_old_store(output, store);
  }
}

/// Files and stores that are not ours would be read as part of the data set.
void check_strangers(const PlannedOutput& output) {
  std::set<fs::path> planned;
  for (const std::string& file : output.files) {
    planned.insert(fs::path(output.folder) / file);
  }
  for (const PlannedStore& store : output.stores) {
    planned.insert(fs::path(output.folder) / store.name);
  }
  std::set<fs::path> folders = subfolders(output);
  for (const std::string& part : output.parts) {
    folders.insert(fs::path(output.folder) / part);
  }
  const auto has_store = [](const fs::directory_entry& entry) {
    std::error_code ignored;
    return entry.is_directory(ignored) && is_zarr_store(entry.path().string());
  };
  std::set<fs::path> with_above = folders;  // the store of all years lies above
  with_above.insert(output.folder);
  for (const fs::path& folder : with_above) {
    std::error_code ignored;
    for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
      const bool is_file = folders.contains(folder) && has_hdf5_name(entry->path().string());
      if (!planned.contains(entry->path()) && (is_file || has_store(*entry))) {
        refuse_output(str("the data set in ", output.folder, " also has ", entry->path().string(),
                          ", which would not be replaced"),
                      "remove what is left of the old data set, or give another folder");
      }
    }
  }
}

void make_folders(const PlannedOutput& output) {
  for (const fs::path& folder : subfolders(output)) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      refuse_output(str("cannot create the folder ", folder.string(), ": ", error.message()),
                    "check the path and its permissions");
    }
  }
}

void check_output_room(const PlannedOutput& output) {
  std::error_code error;
  const fs::space_info space = fs::space(existing_part(output.folder), error);
  if (error || space.available >= static_cast<std::uintmax_t>(output.bytes)) return;  // unknown: writing will tell
  constexpr double kGigabyte = 1e9;
  refuse_output(str("the data set needs ", static_cast<double>(output.bytes) / kGigabyte, " GB, but ", output.folder,
                    " has room for ", static_cast<double>(space.available) / kGigabyte, " GB"),
                "choose fewer or smaller samples, or another file system");
}

}  // namespace

std::unique_ptr<FolderLock> prepare_output(const PlannedOutput& output) {
  const auto check = [&] {
    check_folder(output);
    check_strangers(output);
  };
  check();
  check_output_room(output);
  make_folders(output);
  auto lock = std::make_unique<FolderLock>(output.folder, "data folder", LockHolder().renewal);
  lock->try_take(FolderLock::Doubt::kRefuse);
  check();  // another job may have ended meanwhile
  return lock;
}

}  // namespace vit_hybrid::data
