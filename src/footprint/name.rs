//! Names the program of a process in the same way as `ps_mem`, so that rows can be compared.
//!
//! The name is that of the file, because the kernel cuts a process's own name (comm) to 15 bytes.
//! But a process that has changed its own name keeps it, unless its parent runs the same file ("Web
//! Content" is firefox). A program whose file was replaced since is `[updated]`. One whose file was
//! deleted is `[deleted]`.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::place::Whose;
use crate::sys::proc;

/// Bytes of comm, with its newline.
const COMM_BYTES: usize = 64;
const DELETED: &[u8] = b" (deleted)";

/// Finds the names of programs.
pub struct Program;

impl Program {
    /// Returns the name of a process's program.
    ///
    /// # Errors
    /// The process's own name, as far as that can be read, and the reason why its program cannot be
    /// read. The reason is not found for a kernel thread, a zombie, or a process that has ended.
    pub fn of(id: u32) -> Result<String, (String, io::Error)> {
        let whose = Whose::Process(id);
        let comm = comm(whose);
        match file_name(whose) {
            Ok(file) if file.starts_with(&comm) => Ok(file),
            Ok(file) => {
                let parent = proc::find(whose.path(format_args!("status")), |line| proc::number(line, "PPid:"));
                let same = parent.is_some_and(|id| file_name(Whose::Process(id)).is_ok_and(|parent| parent == file));
                Ok(if same { file } else { comm })
            }
            Err(error) => Err((comm, error)),
        }
    }
}

/// Returns the process's own name. It is empty if it cannot be read.
fn comm(whose: Whose) -> String {
    let mut text = [0; COMM_BYTES];
    let length = whose.open("comm").and_then(|mut file| file.read(&mut text)).unwrap_or(0);
    String::from_utf8_lossy(text[..length].trim_ascii_end()).into_owned()
}

/// Returns the name of the file that the process runs, with a mark if that file no longer exists.
fn file_name(whose: Whose) -> io::Result<String> {
    let path = whose.program()?;
    let (path, mark) = match path.strip_suffix(DELETED) {
        None => (path.as_slice(), ""),
        Some(path) => (path, if replaced(whose, path) { " [updated]" } else { " [deleted]" }),
    };
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    Ok(String::from_utf8_lossy(name).into_owned() + mark)
}

/// Whether a file of that name exists now, as seen by the process.
fn replaced(whose: Whose, path: &[u8]) -> bool {
    let mut there = whose.path(format_args!("root")).as_ref().as_os_str().as_bytes().to_vec();
    there.extend_from_slice(path);
    Path::new(OsStr::from_bytes(&there)).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_like_its_file_although_the_kernel_cuts_its_name() {
        let file = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        assert!(file.len() > 15, "{file}");
        assert_eq!(Program::of(std::process::id()).map_err(|(name, _)| name), Ok(file));
    }

    #[test]
    fn a_process_that_is_not_there_has_no_name() {
        let (name, error) = Program::of(u32::MAX).unwrap_err();
        assert_eq!((name.as_str(), error.kind()), ("", io::ErrorKind::NotFound));
    }
}
