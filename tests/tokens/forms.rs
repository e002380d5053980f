//! What files hold is looked at, not only their names.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use pipewright::data::{Odd, odd_files};

use super::encoding::tokens;
use super::*;

const LINES: &str = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn utf16(text: &str, mark: &[u8]) -> Vec<u8> {
    let letters = text.encode_utf16().flat_map(u16::to_le_bytes);
    mark.iter().copied().chain(letters).collect()
}

fn safetensors() -> Vec<u8> {
    let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    [&(header.len() as u64).to_le_bytes()[..], header, &[0, 0, 128, 63]].concat()
}

/// Files that are no text: a name, their bytes, and what is said of them.
fn no_text() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    vec![
        ("marked.txt", utf16("Hear me", b"\xff\xfe"), "is text in UTF-16, and not text: convert it"),
        ("unmarked.txt", utf16("Hear me", b""), "is text in UTF-16, and not text: convert it"),
        ("big.txt", b"\xfe\xff\0H\0i".to_vec(), "is text in UTF-16, and not text: convert it"),
        ("wide.txt", b"\xff\xfe\0\0H\0\0\0".to_vec(), "is text in UTF-32, and not text: convert it"),
        ("model.safetensors", safetensors(), "is a file of weights (safetensors), and not text"),
        ("a.parquet", b"PAR1 and more".to_vec(), "is a Parquet table, and not text: read it with data.kind"),
        ("a.zip", b"PK\x03\x04 and more".to_vec(), "is a ZIP archive, and not text: unpack it first"),
        ("a.zst", b"\x28\xb5\x2f\xfd..".to_vec(), "is packed by Zstandard, and not text: unpack it first"),
        ("a.xz", b"\xfd7zXZ\0..".to_vec(), "is packed by xz, and not text: unpack it first"),
        ("a.bz2", b"BZh91AY&SY..".to_vec(), "is packed by bzip2, and not text: unpack it first"),
        ("a.npy", b"\x93NUMPY\x01".to_vec(), "is a NumPy array, and not text"),
        ("a.pdf", b"%PDF-1.7".to_vec(), "is a PDF, and not text"),
        ("a.bin", b"a\0\0b".to_vec(), "is a binary file, and not text"),
    ]
}

#[test]
fn what_is_no_text_is_refused_by_name_with_the_cure_as_text_and_as_json_lines() {
    let folder = TempDir::new().unwrap();
    let mut all = no_text();
    all.push(("a.gz", packed(b"Hear me"), "is packed by gzip, and not text: unpack it first"));
    for (name, bytes, expected) in all {
        let paths = [write(&folder, name, &bytes)];
        let mut said = vec![message(Corpus::text(&paths)), message(tokens(&paths, &Recipe::new(Form::Text)))];
        if name != "a.gz" {
            said.push(message(tokens(&paths, &Recipe::new(Form::Jsonl))));
            let packed = write(&folder, "packed.gz", &packed(&bytes));
            said.push(message(tokens(&[packed], &Recipe::new(Form::Jsonl))).replace("packed.gz", name));
        }
        for said in said {
            has(&said, &[&format!("{name}` {expected}")]);
        }
    }
}

#[test]
fn a_folder_of_text_leaves_out_what_is_no_text() {
    let folder = TempDir::new().unwrap();
    write(&folder, "b.txt", b"Hear me");
    for (name, bytes, _) in no_text() {
        write(&folder, name, &bytes);
    }
    write(&folder, "c.gz", &packed(b"more"));
    assert_eq!(Corpus::text(&[folder.path().to_owned()]).unwrap().count(), 7);
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_text() {
    let folder = TempDir::new().unwrap();
    let paths = ["plain", "marked"].map(|name| {
        let mark = if name == "marked" { "\u{feff}" } else { "" };
        [
            write(&folder, &format!("{name}.txt"), format!("{mark}Hear me").as_bytes()),
            write(&folder, &format!("{name}.jsonl"), format!("{mark}{LINES}").as_bytes()),
        ]
    });
    let [plain, marked] = paths.each_ref().map(|[text, lines]| {
        let of = |path: &PathBuf, form| tokens(std::slice::from_ref(path), &Recipe::new(form)).unwrap();
        let bytes = Corpus::text(std::slice::from_ref(text)).unwrap().checksum().unwrap();
        (of(text, Form::Text), of(lines, Form::Jsonl), bytes)
    });
    assert_eq!(plain, marked);
    let only = write(&folder, "only", "\u{feff}".as_bytes());
    assert!(message(Corpus::text(&[only])).ends_with("only` is empty"));
}

#[test]
fn json_lines_are_read_packed_and_under_any_of_their_names() {
    let folder = TempDir::new().unwrap();
    let recipe = Recipe::new(Form::Jsonl);
    let expected = tokens(&[write(&folder, "data.jsonl", LINES.as_bytes())], &recipe).unwrap();
    for name in ["a.JSONL", "a.ndjson", "a.json", "a.jsonl.gz", "a.Json.GZ", "a"] {
        let bytes = match name.to_lowercase().ends_with("gz") {
            true => packed(LINES.as_bytes()),
            false => LINES.replace('\n', "\r\n").into_bytes(),
        };
        let path = write(&folder, name, &bytes);
        assert_eq!(Form::of(std::slice::from_ref(&path)).unwrap(), Form::Jsonl, "{name}");
        assert_eq!(tokens(std::slice::from_ref(&path), &recipe).unwrap(), expected, "{name}");
        if name == "a" {
            continue;
        }
        let alone = TempDir::new().unwrap();
        write(&alone, name, &bytes);
        let of_folder = [alone.path().to_owned()];
        assert_eq!(tokens(&of_folder, &recipe).unwrap(), expected, "{name} in a folder");
        assert_eq!(Form::of(&of_folder).unwrap(), Form::Jsonl, "{name} in a folder");
    }
}

#[test]
fn a_description_beside_json_lines_is_no_data() {
    let folder = TempDir::new().unwrap();
    write(&folder, "data.jsonl", LINES.as_bytes());
    write(&folder, "dataset_info.json", b"{\"splits\": 3}");
    let read = tokens(&[folder.path().to_owned()], &Recipe::new(Form::Jsonl)).unwrap();
    assert_eq!(read.iter().filter(|token| **token == 0).count(), 2);
}

#[test]
fn a_list_of_records_is_refused_with_the_cure() {
    let folder = TempDir::new().unwrap();
    for (text, expected) in [
        ("[\n  {\"text\": \"one\"}\n]", "line 1 is the beginning of a list and not an object"),
        ("[{\"text\": \"one\"}]", "line 1 is a list and not an object"),
    ] {
        let path = write(&folder, "a.json", text.as_bytes());
        assert_eq!(Form::of(std::slice::from_ref(&path)).unwrap(), Form::Jsonl);
        has(&message(tokens(&[path], &Recipe::new(Form::Jsonl))), &[expected, "`jq -c '.[]'`"]);
    }
    let path = write(&folder, "a.json", b"{\n  \"text\": \"one\"\n}");
    let said = message(tokens(&[path], &Recipe::new(Form::Jsonl)));
    has(&said, &["line 1 is broken JSON", "as `jq -c .` writes it"]);
}

#[test]
fn files_of_different_forms_are_refused_and_a_mixed_folder_is_text() {
    let folder = TempDir::new().unwrap();
    let paths = [write(&folder, "a.txt", b"Hear me"), write(&folder, "b.json", LINES.as_bytes())];
    has(&message(Form::of(&paths)), &["a.txt` is text and `", "b.json` is JSON lines: name files"]);
    assert_eq!(Form::of(&[folder.path().to_owned()]).unwrap(), Form::Text);
    let verse = write(&folder, "c.txt", b"[Verse 1]\n{braces} and more\n");
    assert_eq!(Form::of(&[verse]).unwrap(), Form::Text);
    let table = write(&folder, "d.bin", b"PAR1 and more");
    assert_eq!(Form::of(&[table]).unwrap(), Form::Parquet);
}

#[test]
fn text_that_was_meant_in_another_way_is_told() {
    let folder = TempDir::new().unwrap();
    let cases: [(&str, &[u8], &[Odd]); 7] = [
        ("a.txt", b"Speak, speak.\nYou are all resolved, all,\nto die, than to famish, all.\n", &[]),
        ("a.jsonl", LINES.as_bytes(), &[Odd::Records]),
        ("b.txt", LINES.as_bytes(), &[Odd::Records]),
        ("a.CSV", b"text\nHear me\n", &[Odd::Table]),
        ("c.txt", b"a,b,c\n1,2,3\n4,5,6\n", &[Odd::Table]),
        ("d.txt", b"Hear\r\nme\r\n", &[Odd::CarriageReturns]),
        ("e.txt", b"a\tb\tc\r\n1\t2\t3\r\n4\t5\t6\r\n", &[Odd::Table, Odd::CarriageReturns]),
    ];
    for (name, text, expected) in cases {
        let found = odd_files(&[write(&folder, name, text)], Form::Text).unwrap();
        let found: Vec<Odd> = found.iter().map(|oddity| oddity.odd).collect();
        assert_eq!(found, expected, "{name}");
    }
    let odd = |folder: &TempDir, form| {
        let all = odd_files(&[folder.path().to_owned()], form).unwrap();
        let said = all.iter().map(ToString::to_string);
        said.map(|line| line.replace(&folder.path().display().to_string(), "F")).collect::<Vec<_>>()
    };
    let said = odd(&folder, Form::Text);
    assert_eq!(said.len(), 1, "of a folder with text, only carriage returns are told: {said:?}");
    assert!(said[0].starts_with("`F/d.txt` and 1 more have carriage returns at ends of lines"), "{said:?}");
    let tables = TempDir::new().unwrap();
    write(&tables, "a.csv", b"text\nHear me\n");
    write(&tables, "b.csv", b"text\nHear me\n");
    let said = odd(&tables, Form::Text);
    assert!(said.len() == 1 && said[0].starts_with("`F/a.csv` and 1 more seem to be a table"), "{said:?}");
}

#[test]
fn what_is_left_out_of_a_folder_is_told() {
    let folder = TempDir::new().unwrap();
    for (name, text) in [
        ("a.jsonl", LINES.as_bytes()),
        ("b.json", LINES.as_bytes()),
        ("c.txt", b"Hear me"),
        ("d.txt", &utf16("Hear me", &[0xff, 0xfe])),
        ("README.md", b"All."),
        (".hidden.json", b"{}"),
        ("LICENSE", b"All."),
    ] {
        write(&folder, name, text);
    }
    fs::create_dir(folder.path().join("more")).unwrap();
    write(&folder, "more/e.gz", &packed(b"Hear me"));
    let odd = |form| {
        let all = odd_files(&[folder.path().to_owned()], form).unwrap();
        let left_out: Vec<_> = all.iter().filter(|oddity| oddity.odd == Odd::LeftOut(form)).collect();
        assert_eq!(left_out.len(), 1, "{all:?}");
        left_out[0].to_string().replace(&folder.path().display().to_string(), "F")
    };
    assert_eq!(odd(Form::Text), "`F/d.txt` and 1 more are left out, being no text in UTF-8");
    assert!(odd(Form::Jsonl).starts_with("`F/b.json` and 3 more are left out: of a folder, JSON lines are"));
    let named = [folder.path().join("a.jsonl")];
    assert_eq!(odd_files(&named, Form::Jsonl).unwrap(), []);
}
