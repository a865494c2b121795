//! Names the program of a process in the same way as `ps_mem`, so that rows can be compared.
//!
//! The name is that of the file, because the kernel cuts a process's own name (comm) to 15 bytes.
//! But a process that has changed its own name keeps it, unless its parent runs the same file ("Web
//! Content" is firefox). A program whose file was replaced since is `[updated]`. One whose file was
//! deleted is `[deleted]`.

use std::io::{self, Read};

use super::place::ProcDir;
use crate::sys::proc;

/// Bytes of comm, with its newline.
const COMM_BYTES: usize = 64;
const DELETED: &[u8] = b" (deleted)";

/// Returns the name of a process's program.
///
/// # Errors
/// The process's own name, as far as that can be read, and the reason why its program cannot be
/// read. The reason is not found for a kernel thread, a zombie, or a process that has ended.
pub fn program_name(id: u32) -> Result<String, (String, io::Error)> {
    let directory = ProcDir::Process(id);
    let comm = comm(directory);
    let file = match file_name(directory) {
        Ok(file) if file.starts_with(&comm) => return Ok(file),
        Ok(file) => file,
        Err(error) => return Err((comm, error)),
    };
    let parent = proc::find(directory.path("status"), |line| proc::number(line, "PPid:"));
    let same = parent.is_some_and(|id| file_name(ProcDir::Process(id)).is_ok_and(|parent| parent == file));
    Ok(if same { file } else { comm })
}

/// Returns the process's own name. It is empty if it cannot be read.
fn comm(directory: ProcDir) -> String {
    let mut text = [0; COMM_BYTES];
    let length = directory.open("comm").and_then(|mut file| file.read(&mut text)).unwrap_or(0);
    String::from_utf8_lossy(text[..length].trim_ascii_end()).into_owned()
}

/// Returns the name of the file that the process runs, with a mark if that file no longer exists.
fn file_name(directory: ProcDir) -> io::Result<String> {
    let path = directory.program()?;
    let (path, mark) = match path.strip_suffix(DELETED) {
        None => (path.as_slice(), ""),
        Some(path) => (path, if directory.as_seen(path).exists() { " [updated]" } else { " [deleted]" }),
    };
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    Ok(String::from_utf8_lossy(name).into_owned() + mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_is_that_of_its_file_which_the_kernel_does_not_cut() {
        let file = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        assert!(file.len() > 15, "{file}");
        assert_eq!(program_name(std::process::id()).map_err(|(name, _)| name), Ok(file));
    }

    #[test]
    fn a_process_that_does_not_exist_has_no_name() {
        let (name, error) = program_name(u32::MAX).unwrap_err();
        assert_eq!((name.as_str(), error.kind()), ("", io::ErrorKind::NotFound));
    }
}
