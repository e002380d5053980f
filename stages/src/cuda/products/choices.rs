//! Which algorithm was the fastest for a product, as far as earlier trials have shown: trials of other ranks
//! of this process, and of earlier runs on the same kind of GPU. The results are kept on disk, one line a
//! product.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::product::Product;
use crate::cuda::cache::{cache_folder, keep};
use crate::cuda::library::Library;
use crate::cuda::probe;
use crate::error::Result;

/// What is known of each kind of GPU, by the file in which it is kept.
static KNOWN: Mutex<BTreeMap<String, Known>> = Mutex::new(BTreeMap::new());

/// The best algorithm and the number of algorithms, by the product's text.
type Known = BTreeMap<String, (usize, usize)>;

/// How many threads of this process use each GPU.
static USERS: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());

/// What is known of a kind of GPU, with the versions of the driver and of cuBLASLt, which makes the list of
/// algorithms.
#[derive(Debug)]
pub(crate) struct Choices {
    name: String,
    /// The GPU.
    index: u32,
}

impl Choices {
    /// Those for this GPU. The first call for its kind reads what earlier runs have kept.
    pub(crate) fn of(index: u32) -> Result<Self> {
        let (gpu, _) = probe::name_and_memory(index)?;
        let versions = [Library::Driver, Library::CublasLt].map(Library::find);
        let versions = versions.map(|found| found.version.map_or_else(String::new, |it| it.to_string()));
        let name: String = format!("products-{gpu}-{}-{}", versions[0], versions[1])
            .replace(|letter: char| !letter.is_alphanumeric() && letter != '.', "-");
        let mut all = KNOWN.lock();
        if !all.contains_key(&name) {
            all.insert(name.clone(), file(&name).map_or_else(Known::new, |file| read(&file)));
        }
        *USERS.lock().entry(index).or_insert(0) += 1;
        Ok(Self { name, index })
    }

    /// The GPU.
    pub(crate) fn gpu(&self) -> u32 {
        self.index
    }

    /// The fastest algorithm, if it is known for this number of algorithms.
    pub(crate) fn best(&self, what: Product, algorithms: usize) -> Option<usize> {
        let all = KNOWN.lock();
        let (best, of) = *all.get(&self.name)?.get(&what.to_string())?;
        (of == algorithms).then_some(best)
    }

    /// Notes the result of a trial. It is kept on disk only if no other rank of this process uses the
    /// GPU: its work may have made some of the algorithms slower.
    pub(crate) fn learn(&self, what: Product, best: usize, algorithms: usize) {
        let mut all = KNOWN.lock();
        let Some(known) = all.get_mut(&self.name) else { return };
        known.insert(what.to_string(), (best, algorithms));
        if USERS.lock().get(&self.index).is_some_and(|users| *users > 1) {
            return;
        }
        if let Some(file) = file(&self.name) {
            // Other processes may have learned something meanwhile. If the file cannot be written, the next
            // run measures again.
            for (product, choice) in read(&file) {
                known.entry(product).or_insert(choice);
            }
            let lines = known.iter().map(|(product, (best, of))| format!("{best} of {of}: {product}\n"));
            let _ = keep(&file, lines.collect::<String>().as_bytes());
        }
    }
}

impl Drop for Choices {
    fn drop(&mut self) {
        if let Some(users) = USERS.lock().get_mut(&self.index) {
            *users -= 1;
        }
    }
}

fn file(name: &str) -> Option<PathBuf> {
    Some(cache_folder()?.join(format!("{name}.txt")))
}

/// The lines of a file that can be read. None if there is no file.
fn read(file: &Path) -> Known {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = |line: &str| {
        let (choice, product) = line.split_once(": ")?;
        let (best, of) = choice.split_once(" of ")?;
        let (best, of) = (best.parse().ok()?, of.parse().ok()?);
        (best < of).then(|| (product.to_owned(), (best, of)))
    };
    text.lines().filter_map(line).collect()
}
