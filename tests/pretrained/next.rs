//! Text that is written token by token has the logits of the whole text.

use pipewright::stages::Tensor;

use super::*;

#[test]
fn tokens_that_follow_others_have_the_logits_of_transformers() {
    for family in FAMILIES {
        let golden = Golden::read(family);
        let expected = golden.numbers("logits");
        let (_, mut builders) = stages(&folder(family), 1, 1);
        let mut model = builders.remove(0).build().expect("its weights are read");
        for row in 0..2 {
            let (input, _) = golden.batches().micro_batch(0, MicroBatch(row)).expect("recorded");
            let ids = input.ids();
            let vocab = expected.len() / (4 * ids.len());
            // A new text begins at 0, whatever was read before.
            for cuts in [&[5, 6, 7, 8, 9, 10, 11, 12][..], &[1, 8, 12], &[12]] {
                let mut past = 0;
                for &end in cuts {
                    let next = Tensor::from_ids(&[1, end - past], ids[past..end].to_vec()).expect("it fits");
                    let logits = model.next_scores(past, next).expect("it computes");
                    let last = (row as usize * ids.len() + end - 1) * vocab;
                    let what = format!("{family}, row {row}, {past} to {end}");
                    assert_near(&logits, &expected[last..last + vocab], 1e-4, &what);
                    past = end;
                }
            }
        }
    }
}
