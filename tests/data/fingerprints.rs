use super::*;

fn drawn(corpus: &Arc<Corpus>, seed: u64) -> Fingerprint {
    let windows = Windows::drawn(Arc::clone(corpus), 0..corpus.count(), 1, 4, seed).unwrap();
    windows.fingerprint().unwrap()
}

#[test]
fn one_changed_byte_anywhere_is_other_text() {
    let bytes: Vec<u8> = (0..300_000_u32).map(|index| (index % 251) as u8 | 1).collect();
    let before = drawn(&text(&bytes), 1);
    for place in [0, 150_000, 299_999] {
        let mut changed = bytes.clone();
        changed[place] ^= 2;
        assert!(!drawn(&text(&changed), 1).same_contents(&before), "byte {place}");
    }
}

#[test]
fn text_is_the_same_wherever_it_lies_and_however_it_is_cut_into_files() {
    let whole = drawn(&text(b"to be or not to be"), 1);
    let parts = folder(&[("a", b"to be or"), ("b", b" not to be")]);
    let corpus = Arc::new(Corpus::text(&[parts.path().to_owned()]).unwrap());
    assert!(drawn(&corpus, 1).same_batches(&whole));
}

#[test]
fn another_seed_takes_other_micro_batches_from_the_same_contents() {
    let corpus = counting(100);
    let (one, two) = (drawn(&corpus, 1), drawn(&corpus, 2));
    assert!(one.same_contents(&two) && !one.same_batches(&two));
}

#[test]
fn the_last_token_and_the_last_label_count() {
    let before = drawn(&counting(70_000), 1);
    assert!(!drawn(&counting(70_001), 1).same_contents(&before));
    let images = |labels: [u8; 2]| {
        let folder = super::images::of(&[1, 2], &labels);
        let all = super::images::read(folder.path());
        Images::in_order(all, 0..2, 1).unwrap().fingerprint().unwrap()
    };
    assert!(images([0, 1]).same_contents(&images([0, 1])));
    assert!(!images([0, 1]).same_contents(&images([0, 2])));
}

/// A data source without a fingerprint of its own.
struct Own(f32);

impl DataSource for Own {
    fn micro_batch(&self, _: u64, _: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        Ok((Tensor::from_vec(&[1], vec![self.0])?, Tensor::from_ids(&[1], vec![0])?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[1]), Shape::ids(&[1]))
    }
}

#[test]
fn a_source_of_ones_own_is_known_by_its_first_micro_batch() {
    let of = |number| Own(number).fingerprint().unwrap();
    assert!(of(1.0).same_batches(&of(1.0)));
    assert!(!of(1.0).same_contents(&of(2.0)));
    assert!(of(1.0).to_string().contains("Own"), "{}", of(1.0));
}

#[test]
fn the_built_in_text_never_changes() {
    let corpus = Corpus::built_in();
    assert_eq!((corpus.count(), corpus.files()), (131_058, 1));
    assert_eq!(corpus.checksum().unwrap().to_string(), "5dc96ba83aae4360db00d6b2174ea512");
    corpus.check_vocabulary(128).unwrap();
}
