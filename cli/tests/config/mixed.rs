//! Several sources of data: the tables `[[data.sources]]`.

use pipewright::data::{Longer, LossOn, Packing, Share};
use pipewright_cli::config::DataKind;

use super::*;

const MIXED: &str = "\
[data]
seq = 64
tokenizer = 'tokenizer.json'
field = 'messages'
validation = 0.2

[[data.sources]]
kind = 'jsonl'
path = 'chats.jsonl'
loss_on = 'answers'
share = 3

[[data.sources]]
name = 'wiki'
kind = 'jsonl'
path = ['a.jsonl', 'b.jsonl']
field = 'text'
validation = 100

[[data.sources]]
kind = 'text'
path = 'book.txt'
";

#[test]
fn a_source_has_the_keys_of_data_unless_it_sets_them() {
    let config = with_sets(MIXED, &[]).unwrap();
    let [chats, wiki, book] = config.data.sources.as_slice() else {
        panic!("three sources: {:?}", config.data.sources);
    };
    assert_eq!((chats.kind, chats.field.as_str(), chats.share), (DataKind::Jsonl, "messages", Some(3.0)));
    assert_eq!((chats.loss_on, chats.validation), (LossOn::Answers, Share::Fraction(0.2)));
    assert_eq!((wiki.kind, wiki.field.as_str(), wiki.share), (DataKind::Jsonl, "text", None));
    assert_eq!((wiki.loss_on, wiki.validation), (LossOn::All, Share::Count(100)));
    // `field` is for documents, so this one has not got it.
    assert_eq!((book.kind, book.field.as_str()), (DataKind::Text, "text"));
    for source in [chats, wiki, book] {
        assert_eq!((source.seq, source.tokenizer.is_some()), (64, true));
    }
    let names = config.data.sources.iter().map(|source| source.name.as_deref());
    assert_eq!(names.collect::<Vec<_>>(), [Some("chats"), Some("wiki"), Some("book")]);
}

#[test]
fn a_config_with_sources_is_saved_and_read_again() {
    let config = with_sets(MIXED, &[]).unwrap();
    let saved = config.resolved_toml().unwrap();
    let again = parse(&saved).unwrap();
    assert_eq!(again.resolved_toml().unwrap(), saved);
    assert_eq!(config.changes_from(&again).unwrap(), [""; 0]);
    let kept: Config = with_sets(MIXED, &["data.validation=0.3"]).unwrap();
    let changes = kept.changes_from(&again).unwrap();
    assert!(changes.iter().any(|change| change.starts_with("data.sources: ")), "{changes:?}");
    // What an older default was is kept for each source.
    let answers = "packing = \"joined\"";
    let older = saved.replacen("packing = \"apart\"", answers, 1);
    assert_ne!(older, saved);
    let resumed = config.grouped_as(&older).unwrap();
    let packing = resumed.data.sources[0].packing;
    assert_eq!(packing, parse(&older).unwrap().data.sources[0].packing);
    assert_eq!(parse("").unwrap().packing(), None::<Packing>);
}

#[test]
fn what_a_stronger_source_of_settings_says_of_data_is_for_all_sources() {
    let saved = with_sets(MIXED, &[]).unwrap().resolved_toml().unwrap();
    for text in [MIXED, &saved] {
        let sets = ["data.validation=7", "data.seq=32", "data.seed=9", "data.tokenizer=other.json"];
        let config =
            with_sets(text, &[&sets[..], &["data.field=body", "data.packing=single"]].concat()).unwrap();
        for source in &config.data.sources {
            assert_eq!((source.validation, source.seq, source.seed), (Share::Count(7), 32, 9));
            assert_eq!(source.tokenizer.as_deref(), Some(std::path::Path::new("other.json")));
            assert_eq!(source.packing, Some(pipewright_cli::config::PackingBy::Single));
        }
        let fields = config.data.sources.iter().map(|source| source.field.as_str());
        // Text has no fields.
        assert_eq!(fields.collect::<Vec<_>>(), ["body", "body", "text"]);
        let kinds = with_sets(text, &["data.kind=jsonl", "data.validation_path=held.jsonl"]).unwrap();
        let kinds = kinds.data.sources.iter().map(|source| source.kind).collect::<Vec<_>>();
        assert_eq!(kinds, [DataKind::Jsonl, DataKind::Jsonl, DataKind::Text]);
    }
}

#[test]
fn what_data_says_of_longer_documents_is_for_the_sources_that_keep_them_apart() {
    let with = |sets: &[&str]| with_sets(MIXED, sets);
    // Chats are kept apart, as only answers are learnt, and `wiki` is not.
    let config = with(&["data.longer=refuse"]).unwrap();
    let longer = config.data.sources.iter().map(|source| source.longer);
    assert_eq!(longer.collect::<Vec<_>>(), [Longer::Refuse; 3]);
    let saved = config.resolved_toml().unwrap();
    assert_eq!(parse(&saved).unwrap().resolved_toml().unwrap(), saved);
    has(
        &refused(with(&["data.longer=refuse", "data.packing=joined"])),
        &["--set: data.longer: only documents"],
    );
    let own = MIXED.replace("name = 'wiki'", "longer = 'refuse'");
    has(&refused(parse(&own)), &["my.toml:14: data.longer: only documents that are kept apart"]);
}

#[test]
fn validation_data_in_common_keep_their_keys_in_a_saved_config() {
    let text = MIXED.replace(
        "validation = 0.2",
        "kind = 'jsonl'\nloss_on = 'answers'\ntemplate = 'llama3'\nvalidation_path = 'held.jsonl'",
    );
    let text = text.replace("validation = 100\n", "");
    let config = parse(&text).unwrap();
    let again = parse(&config.resolved_toml().unwrap()).unwrap();
    for config in [&config, &again] {
        let data = &config.data;
        assert_eq!(
            (data.kind, data.field.as_str(), data.loss_on),
            (DataKind::Jsonl, "messages", LossOn::Answers)
        );
        assert!(data.template.is_some());
        assert!(matches!(config.packing(), Some(Packing::Apart(_))));
        assert!(data.sources[2].packing.is_none(), "windows of text");
    }
    assert_eq!(config.changes_from(&again).unwrap(), [""; 0]);
}

#[test]
fn a_stronger_source_of_settings_decides_between_one_path_and_several_sources() {
    let one = with_sets(MIXED, &["data.path=other.txt", "data.kind=text"]).unwrap();
    assert!(one.data.sources.is_empty());
    let list = "data.sources=[{path = 'x.txt'}, {path = 'y.txt', share = 0.5}]";
    let several = with_sets("[data]\npath = 'other.txt'", &[list]).unwrap();
    assert_eq!(several.data.sources.len(), 2);
    assert!(several.data.path.is_empty());
    let none = with_sets(MIXED, &["data.sources=[]", "data.path=x", "data.kind=jsonl"]).unwrap();
    assert!(none.data.sources.is_empty());
    let said = refused(with_sets("", &["data.sources=[{path='a' path='b'}]"]));
    has(&said, &["--set: data.sources: "]);
    assert!(!said.contains("expected tables"), "{said}");
    // One validation for all.
    let sets = ["data.validation_path=held.jsonl", "data.kind=jsonl"];
    let common = with_sets(&MIXED.replace("validation = 0.2", ""), &sets).unwrap();
    assert!(common.data.sources.iter().all(|source| source.validation_path.is_empty()));
}

#[test]
fn sources_that_cannot_be_used_are_refused_with_the_line() {
    let source = |keys: &str| format!("[data]\nseq = 64\n\n[[data.sources]]\npath = 'x'\n{keys}");
    for (keys, parts) in [
        ("share = -1", &["my.toml:6: data.share: -1 is not allowed: it must be 0 or more"][..]),
        ("share = nan", &["my.toml:6: data.share: NaN is not allowed"]),
        ("share = 'x'", &["my.toml:6: data.share: expected a number, got \"x\""]),
        ("share = 0", &["my.toml:4: data.sources: no source has a share above 0"]),
        ("seq = 32", &["my.toml:6: data.seq: all sources have the same: set it in [data]"]),
        ("tokenizer = 't'", &["my.toml:6: data.tokenizer: all sources have the same"]),
        ("field = 'text'", &["my.toml:6: data.field is for data.kind = \"jsonl\" or \"parquet\""]),
        ("filed = 'text'", &["my.toml:6: unknown key data.filed: did you mean `field`?"]),
        ("kind = 'idx'", &["my.toml:6: data.kind: sources are of tokens"]),
        ("kind = 'csv'", &["my.toml:6: data.kind: expected one of", "data::Table"]),
        ("kind = 'jsonl'", &["data.tokenizer: documents become tokens"]),
        ("validation = 1.5", &["my.toml:6: data.validation: 1.5 is neither a fraction"]),
        ("[[data.sources]]", &["data.path: source 2 of [[data.sources]] has no data"]),
        ("[[data.sources]]\npath = 'a/x.bin'", &["data.name: two sources are called \"x\""]),
        ("sources = []", &["my.toml:6: data.sources: a source has no sources itself"]),
    ] {
        has(&refused(parse(&source(keys))), parts);
    }
    all_refused(&[
        (
            "[data]\nshare = 1\n[[data.sources]]\npath = 'y'",
            &["my.toml:2: data.share: it is for a source: write it below"],
        ),
        (
            "[data]\nvalidation_path = 'x'\n[[data.sources]]\npath = 'y'\nshare = 0\n\
             [[data.sources]]\npath = 'z'",
            &["my.toml:5: data.share: with 0, and data.validation_path in [data], nothing uses this source"],
        ),
        ("[data]\nshare = 1", &["my.toml:2: data.share: it is for a source: write it below"]),
        ("[data]\nname = 'x'", &["my.toml:2: data.name: it is for a source"]),
        ("[data]\nsources = 3", &["my.toml:2: data.sources: expected tables, each with its keys below"]),
        ("[data]\nsources = ['a']", &["my.toml:2: data.sources: expected tables"]),
        (
            "[data]\npath = 'x'\n[[data.sources]]\npath = 'y'",
            &["my.toml:2: data.path: with [[data.sources]], each source has a path of its own"],
        ),
        (
            "[data]\nvalidation_path = 'x'\n[[data.sources]]\npath = 'y'\nvalidation_path = 'z'",
            &["my.toml:5: data.validation_path: [data] has one for all sources"],
        ),
        (
            "[data]\nfield = 'text'\n[[data.sources]]\npath = 'y'",
            &["my.toml:2: data.field is for none of the kinds of the sources"],
        ),
        (
            "[data]\nkind = 'cifar10'\n[[data.sources]]\npath = 'y'\nkind = 'text'",
            &["my.toml:2: data.kind: sources are of tokens"],
        ),
    ]);
}
