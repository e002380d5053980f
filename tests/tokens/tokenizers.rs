use super::*;

#[test]
fn texts_become_the_tokens_that_python_gives_and_come_back() {
    let (tokenizer, encoded) = (small(), encoded());
    let texts = encoded["texts"].as_array().unwrap();
    assert!(texts.len() >= 10);
    for case in texts {
        let text = case["text"].as_str().unwrap();
        let tokens = tokenizer.encode(text).unwrap();
        assert_eq!(tokens, tokens_of(&case["tokens"]), "{text:?}");
        assert_eq!(tokenizer.decode(&tokens).unwrap(), case["decoded"].as_str().unwrap());
    }
    for chat in encoded["chats"].as_array().unwrap() {
        let text = chat["text"].as_str().unwrap();
        let with_places = tokenizer.encode_with_places(text).unwrap();
        let tokens: Vec<u32> = with_places.into_iter().map(|(token, _)| token).collect();
        assert_eq!(tokens, tokens_of(&chat["tokens"]));
    }
    assert_eq!(tokenizer.vocabulary() as u64, encoded["vocabulary"].as_u64().unwrap());
}

#[test]
fn a_stream_shows_whole_characters_only_and_all_of_the_text() {
    let (tokenizer, encoded) = (small(), encoded());
    for case in encoded["texts"].as_array().unwrap() {
        let mut stream = TextStream::new(&tokenizer);
        let mut text = String::new();
        for token in tokens_of(&case["tokens"]) {
            let new = stream.push(token).unwrap();
            assert!(!new.contains('\u{fffd}'), "{new:?}");
            text += &new;
        }
        text += &stream.finish().unwrap();
        assert_eq!(text, case["decoded"].as_str().unwrap());
    }
}

#[test]
fn bytes_that_are_no_character_are_shown_as_such_and_do_not_stop_a_stream() {
    let tokenizer = small();
    let smile = tokenizer.encode("😀").unwrap();
    assert_eq!(smile.len(), 4, "a token for each byte");
    let mut stream = TextStream::new(&tokenizer);
    let mut text = String::new();
    for _ in 0..40 {
        text += &stream.push(smile[0]).unwrap();
    }
    assert!(text.chars().count() >= 36 && text.chars().all(|letter| letter == '\u{fffd}'), "{text}");
    for token in tokenizer.encode(" and on").unwrap() {
        text += &stream.push(token).unwrap();
    }
    assert!(text.ends_with(" and on"), "{text}");
    let mut unfinished = TextStream::new(&tokenizer);
    assert_eq!(unfinished.push(smile[0]).unwrap(), "");
    assert_eq!(unfinished.finish().unwrap(), "\u{fffd}");
}

#[test]
fn special_tokens_have_names_and_one_ends_a_document() {
    let tokenizer = small();
    let names: Vec<_> = tokenizer.special_tokens().into_iter().map(|(_, text)| text).collect();
    // The last one pads, as the file says.
    assert_eq!(names, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "[PAD]"]);
    assert_eq!(tokenizer.end_of_text(None).unwrap(), 0);
    assert_eq!(tokenizer.end_of_text(Some("<|im_end|>")).unwrap(), 2);
    let said = message(tokenizer.end_of_text(Some("<end>")));
    has(&said, &["has no token `<end>`: name one that it has as data.end_of_text"]);
}

#[test]
fn a_folder_may_stand_for_its_file_and_what_is_no_tokenizer_is_named() {
    let whole = Tokenizer::read(&golden("")).unwrap();
    assert_eq!(whole.encode("hear me").unwrap(), small().encode("hear me").unwrap());
    let folder = TempDir::new().unwrap();
    has(&message(Tokenizer::read(folder.path())), &["has no tokenizer.json", "save_pretrained"]);
    has(&message(Tokenizer::read(&folder.path().join("none.json"))), &["cannot read", "none.json"]);
    has(&message(Tokenizer::read("/dev/null".as_ref())), &["/dev/null` is not a regular file"]);
    let path = folder.path().join("config.json");
    fs::write(&path, "{\"model_type\": \"llama\"}").unwrap();
    has(&message(Tokenizer::read(&path)), &["config.json` is no tokenizer in the form of"]);
}

#[test]
fn a_vocabulary_that_does_not_fit_the_model_is_refused_with_both_numbers() {
    let tokenizer = small();
    tokenizer.check_vocabulary(512).unwrap();
    let said = message(tokenizer.check_vocabulary(511));
    has(&said, &["has 512 tokens, and model.vocab is 511: set model.vocab to 512 or more"]);
}
