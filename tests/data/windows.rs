use super::*;

#[test]
fn a_part_shorter_than_one_window_says_what_there_is_and_what_is_needed() {
    let corpus = text(&[b'x'; 57]);
    let (train, validation) = Share::Fraction(0.1).split(57);
    let said = message(Windows::drawn(Arc::clone(&corpus), train.clone(), 1, 128, 0));
    has(&said, &["text.txt` is too short: of its 57 tokens 51 are for training"]);
    has(&said, &["one window needs 129"]);
    let said = message(Windows::even(Arc::clone(&corpus), validation, 1, 8, 1));
    has(&said, &["6 are for validation, and one window needs 9"]);
    assert!(Windows::drawn(corpus, train, 1, 50, 0).is_ok());
}

#[test]
fn even_windows_reach_from_the_first_token_to_the_last() {
    let corpus = counting(1000);
    let windows = Windows::even(corpus, 900..1000, 2, 9, 2).unwrap();
    let starts: Vec<u32> = (0..2)
        .flat_map(|index| windows.micro_batch(7, MicroBatch(index)).unwrap().0.ids().to_vec())
        .step_by(9)
        .collect();
    assert_eq!(starts, [900, 930, 960, 990]);
}

#[test]
fn steps_micro_batches_rows_and_seeds_draw_their_own_windows() {
    let corpus = counting(1_000_000);
    let draw = |seed, step, micro_batch| {
        let windows = Windows::drawn(Arc::clone(&corpus), 0..1_000_000, 2, 1, seed).unwrap();
        windows.micro_batch(step, MicroBatch(micro_batch)).unwrap().0.ids().to_vec()
    };
    let all = [draw(1, 0, 0), draw(2, 0, 0), draw(1, 1, 0), draw(1, 0, 1)].concat();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 8, "{all:?}");
}

#[test]
fn a_range_that_is_not_a_part_of_the_corpus_is_refused() {
    let corpus = counting(100);
    #[expect(clippy::reversed_empty_ranges, reason = "what is refused")]
    for span in [0..101, 60..40, 200..300] {
        for said in [
            message(Windows::drawn(Arc::clone(&corpus), span.clone(), 1, 8, 0)),
            message(Windows::even(Arc::clone(&corpus), span.clone(), 1, 8, 2)),
        ] {
            let expected = format!("{}..{} is not a part of", span.start, span.end);
            assert!(said.starts_with(&expected) && said.ends_with("0..100"), "{said}");
        }
    }
}

#[test]
fn windows_without_rows_or_tokens_are_refused() {
    let corpus = counting(100);
    has(&message(Windows::drawn(Arc::clone(&corpus), 0..100, 0, 8, 0)), &["at least one row"]);
    has(&message(Windows::even(corpus, 0..100, 1, 0, 2)), &["at least one token of a row"]);
}

proptest! {
    #[test]
    fn windows_lie_inside_their_part_and_the_target_is_one_token_later(
        count in 40_usize..400,
        held in 10_u64..20,
        rows in 1_usize..4,
        seq in 1_usize..9,
        place in (any::<u64>(), 0_u32..20),
        seed in any::<u64>(),
    ) {
        let corpus = counting(count);
        let (train, validation) = Share::Count(held).split(corpus.count());
        prop_assert!(train.end == validation.start && validation.end == count as u64);
        let drawn = Windows::drawn(Arc::clone(&corpus), train.clone(), rows, seq, seed).unwrap();
        let even = Windows::even(corpus, validation.clone(), rows, seq, 7).unwrap();
        let (step, micro_batch) = place;
        for (source, span) in [(&drawn, &train), (&even, &validation)] {
            let (input, target) = source.micro_batch(step, MicroBatch(micro_batch)).unwrap();
            let again = source.micro_batch(step, MicroBatch(micro_batch)).unwrap();
            prop_assert_eq!(&(input.clone(), target.clone()), &again);
            prop_assert_eq!((*input.shape(), *target.shape()), source.shapes());
            let inside = |id: &u32| span.contains(&u64::from(*id));
            prop_assert!(input.ids().iter().chain(target.ids()).all(inside));
            prop_assert!(input.ids().iter().zip(target.ids()).all(|(a, b)| a + 1 == *b));
            let follow = |row: &[u32]| row.windows(2).all(|pair| pair[0] + 1 == pair[1]);
            prop_assert!(input.ids().chunks(seq).all(follow));
        }
    }

    #[test]
    fn a_share_splits_without_overlap(
        total in 0_u64..10_000,
        fraction in 0.0..1.0_f64,
        count in 0_u64..20_000,
    ) {
        for share in [Share::Fraction(fraction), Share::Count(count)] {
            let (train, validation) = share.split(total);
            prop_assert_eq!((train.start, train.end, validation.end), (0, validation.start, total));
        }
    }
}
