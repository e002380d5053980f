//! What is read at the moment, in a file, in case that the process ends in it; panics; and the end of a
//! reader that hangs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Once;
use std::{panic, process};

use super::*;

/// A reader that is given hours ends when one input takes so long. Tests have no limit: machines are slow.
const LONGEST: Duration = Duration::from_secs(120);

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The file with the input, and when its reading began.
pub(crate) struct Watch {
    path: PathBuf,
    file: File,
    since: Arc<Mutex<Option<Instant>>>,
}

impl Watch {
    pub(crate) fn begin(path: &Path) -> Self {
        collect_panics();
        let since = Arc::new(Mutex::new(None::<Instant>));
        if env::var_os("PIPEWRIGHT_FUZZ_MINUTES").is_some() {
            let (path, since) = (path.to_owned(), Arc::downgrade(&since));
            thread::spawn(move || {
                while let Some(since) = since.upgrade() {
                    if since.lock().expect("no panic").is_some_and(|since| since.elapsed() > LONGEST) {
                        eprintln!("it hangs with the input in {}", path.display());
                        process::abort();
                    }
                    drop(since);
                    thread::sleep(Duration::from_secs(1));
                }
            });
        }
        let file = File::create(path).expect("a file for the input");
        let path = path.to_owned();
        Self { path, file, since }
    }

    /// Notes what is read now.
    pub(crate) fn reads(&self, input: &[u8]) {
        self.file.set_len(0).and_then(|()| self.file.write_all_at(input, 0)).expect("it is noted");
        *self.since.lock().expect("no panic") = Some(Instant::now());
    }

    /// Nothing is read now.
    pub(crate) fn rests(&self) {
        *self.since.lock().expect("no panic") = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Whatever failed has been kept under another name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Panics are noted, and printed only if they end a test.
fn collect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if info.location().is_some_and(|at| at.file().starts_with("tests/")) {
                return print(info);
            }
            let at = info.location().map(ToString::to_string).unwrap_or_default();
            let text = info.payload().downcast_ref::<String>().map(String::as_str);
            let what = text.or_else(|| info.payload().downcast_ref::<&str>().copied()).unwrap_or("?");
            let mut all = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(format!("{what}, at {at}"));
        }));
    });
}

/// The panics since this was asked last.
pub(crate) fn panics() -> Vec<String> {
    std::mem::take(&mut PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}
