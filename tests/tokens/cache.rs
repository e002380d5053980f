//! Tokens that are kept are compared with their checksums, and nothing is left of processes that were killed.

use super::*;

struct Cache {
    folder: TempDir,
    text: PathBuf,
}

impl Cache {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let text = folder.path().join("a.txt");
        fs::write(&text, "Hear me speak.\n".repeat(2000)).unwrap();
        Self { folder, text }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// The tokens' checksum, and whether they were made.
    fn encode(&self) -> (String, bool) {
        let (recipe, mut made) = (Recipe::new(Form::Text), false);
        let paths = std::slice::from_ref(&self.text);
        let documents =
            Documents::encode(paths, &small(), &recipe, &self.path(), &mut |_| made = true).unwrap();
        (documents.corpus().checksum().unwrap().to_string(), made)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut all: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all
    }
}

#[test]
fn damage_to_any_file_of_the_cache_is_found_and_the_tokens_are_made_again() {
    let cache = Cache::new();
    let (whole, made) = cache.encode();
    assert!(made);
    let files = cache.files();
    let names: Vec<_> = files.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    assert!(
        matches!(&names[..], [bin, json, idx]
            if bin.ends_with(".bin") && json.ends_with(".bin.json") && idx.ends_with(".idx")),
        "{names:?}"
    );
    for path in &files {
        let bytes = fs::read(path).unwrap();
        let mut one_bit = bytes.clone();
        one_bit[bytes.len() / 2] ^= 1;
        let mut zeros = bytes.clone();
        zeros[bytes.len() / 4..bytes.len() / 2].fill(0);
        let longer = [&bytes[..], &bytes[..]].concat();
        for damaged in [one_bit, zeros, longer, bytes[..bytes.len() / 2].to_vec(), Vec::new()] {
            fs::write(path, damaged).unwrap();
            assert_eq!(cache.encode(), (whole.clone(), true), "{}", path.display());
            assert_eq!(fs::read(path).unwrap(), bytes);
            assert_eq!(cache.encode(), (whole.clone(), false));
        }
        fs::remove_file(path).unwrap();
        assert_eq!(cache.encode(), (whole.clone(), true));
    }
}

#[test]
fn what_killed_processes_have_left_is_removed_and_what_others_write_is_not() {
    let cache = Cache::new();
    fs::create_dir(cache.path()).unwrap();
    let other = "0123456789abcdef0123456789abcdef";
    let at = |name: String| cache.path().join(name);
    let left = [
        at(format!(".{other}.bin.4711.partial")),
        at(format!(".{other}.idx.4711.partial")),
        at(format!(".{other}.bin.json.4711.partial")),
    ];
    for path in &left {
        fs::write(path, "half").unwrap();
    }
    let written = at(format!(".{other}.bin.4712.partial"));
    let writer = fs::File::create(&written).unwrap();
    writer.lock().unwrap();
    let foreign = at(".notes.txt.1.partial".to_owned());
    fs::write(&foreign, "of somebody else").unwrap();
    cache.encode();
    assert!(left.iter().all(|path| !path.exists()), "{:?}", cache.files());
    assert!(written.exists() && foreign.exists(), "{:?}", cache.files());
    drop(writer);
    fs::write(&cache.text, "other text").unwrap();
    cache.encode();
    assert!(!written.exists(), "its process has ended");
}
