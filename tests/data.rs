//! Data sources: what they give, that they are pure in position, and what they say of files they cannot use.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pipewright::data::{Corpus, DataSource, IGNORED, Images, LabelledImages, Share, Width, Windows};
use pipewright::id::MicroBatch;
use proptest::prelude::*;
use tempfile::TempDir;

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

fn text(bytes: &[u8]) -> Arc<Corpus> {
    let folder = folder(&[("text.txt", bytes)]);
    Arc::new(Corpus::text(&[folder.path().join("text.txt")]).unwrap())
}

fn counting(count: usize) -> Arc<Corpus> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tokens.bin");
    fs::write(
        &path,
        (0..count as u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>(),
    )
    .unwrap();
    Arc::new(Corpus::tokens(&[path], Width::U32).unwrap())
}

/// Every token, taken through windows of the whole.
fn everything(corpus: &Arc<Corpus>) -> Vec<u32> {
    let count = corpus.count();
    let windows = Windows::even(Arc::clone(corpus), 0..count, 1, count as usize - 1, 1).unwrap();
    let (input, target) = windows.micro_batch(0, MicroBatch(0), 0).unwrap();
    input.ids().iter().chain(target.ids().last()).copied().collect()
}

fn as_text(tokens: &[u32]) -> String {
    tokens.iter().map(|&token| token as u8 as char).collect()
}

fn message<T>(result: pipewright::Result<T>) -> String {
    let error = result.err().expect("an error");
    assert!(matches!(error, pipewright::Error::Data(_)), "{error:?}");
    error.to_string()
}

mod text_files {
    use super::*;

    #[test]
    fn a_file_is_its_bytes() {
        assert_eq!(
            everything(&text("naïve\n".as_bytes())),
            [110, 97, 195, 175, 118, 101, 10]
        );
    }

    #[test]
    fn a_folder_is_read_in_sorted_order_without_hidden_binary_target_and_runs() {
        let folder = folder(&[
            ("b.txt", b"B"),
            ("a/z.rs", b"Z"),
            ("a/c.md", b"C"),
            (".hidden", b"H"),
            (".git/config", b"G"),
            ("picture.png", b"P\0P"),
            ("target/debug/x", b"T"),
            ("a/runs/y", b"R"),
            ("empty", b""),
        ]);
        let corpus = Corpus::text(&[folder.path().to_owned()]).unwrap();
        assert_eq!(as_text(&everything(&Arc::new(corpus))), "CZB");
    }

    #[test]
    fn several_paths_follow_each_other_and_a_named_file_is_taken_whatever_its_name() {
        let folder = folder(&[("two", b"2"), (".one", b"1"), ("target/three", b"3")]);
        let paths = [".one", "two", "target"].map(|name| folder.path().join(name));
        assert_eq!(
            as_text(&everything(&Arc::new(Corpus::text(&paths).unwrap()))),
            "123"
        );
    }

    #[test]
    fn a_missing_path_says_where_it_was_looked_for() {
        let said = message(Corpus::text(&[PathBuf::from("no/such.txt")]));
        let absolute = std::env::current_dir().unwrap().join("no/such.txt");
        assert!(said.starts_with("cannot read `no/such.txt`: "), "{said}");
        assert!(said.contains(&format!("`{}`", absolute.display())), "{said}");
    }

    #[test]
    fn an_empty_file_and_a_folder_without_text_are_named() {
        let folder = folder(&[("empty.txt", b""), ("sub/picture", b"\0")]);
        let file = folder.path().join("empty.txt");
        assert_eq!(
            message(Corpus::text(std::slice::from_ref(&file))),
            format!("`{}` is empty", file.display())
        );
        let said = message(Corpus::text(&[folder.path().to_owned()]));
        assert!(
            said.starts_with(&format!("the folder `{}` holds no text", folder.path().display())),
            "{said}"
        );
    }

    #[test]
    fn a_byte_outside_the_vocabulary_is_named() {
        let corpus = text(b"abc\xc3");
        corpus.check_vocabulary(196).unwrap();
        let said = message(corpus.check_vocabulary(128));
        assert!(
            said.contains("text.txt`: token 195 at position 3 is outside"),
            "{said}"
        );
        assert!(said.contains("vocabulary of 128 (0..=127)"), "{said}");
    }
}

mod token_files {
    use super::*;

    fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn both_widths_are_little_endian_and_files_follow_each_other() {
        let folder = TempDir::new().unwrap();
        let one = write(&folder, "one", &[1, 0, 2, 1]);
        let two = write(&folder, "two", &[255, 255]);
        let corpus = Corpus::tokens(&[one, two], Width::U16).unwrap();
        assert_eq!(everything(&Arc::new(corpus)), [1, 258, 65535]);
        let wide = write(&folder, "wide", &[1, 0, 0, 0, 0, 0, 1, 0]);
        let corpus = Corpus::tokens(&[wide], Width::U32).unwrap();
        assert_eq!(everything(&Arc::new(corpus)), [1, 65536]);
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_named_with_its_file_and_position() {
        let folder = TempDir::new().unwrap();
        let many: Vec<u8> = (0..200_000_u32)
            .flat_map(|index| ((index % 50) as u16).to_le_bytes())
            .collect();
        let one = write(&folder, "one.bin", &many);
        let two = write(&folder, "two.bin", &[7, 0, 8, 0, 51, 0]);
        let corpus = Corpus::tokens(&[one, two], Width::U16).unwrap();
        corpus.check_vocabulary(52).unwrap();
        let said = message(corpus.check_vocabulary(51));
        assert!(
            said.contains("two.bin`: token 51 at position 2 is outside the model's vocabulary of 51"),
            "{said}"
        );
    }

    #[test]
    fn missing_empty_and_ragged_files_are_named() {
        let folder = TempDir::new().unwrap();
        let ragged = write(&folder, "ragged", &[1, 0, 2]);
        let said = message(Corpus::tokens(&[ragged], Width::U16));
        assert!(
            said.contains("ragged` holds 3 bytes, which is not a whole number of tokens of 2 bytes"),
            "{said}"
        );
        let empty = write(&folder, "empty", &[]);
        assert!(message(Corpus::tokens(&[empty], Width::U32)).ends_with("empty` is empty"));
        let said = message(Corpus::tokens(&[folder.path().join("none")], Width::U32));
        assert!(said.starts_with("cannot read `"), "{said}");
        assert!(message(Corpus::tokens(&[folder.path().to_owned()], Width::U32)).contains("is not a file"));
    }
}

mod windows {
    use super::*;

    #[test]
    fn a_part_shorter_than_one_window_says_what_there_is_and_what_is_needed() {
        let corpus = text(&[b'x'; 57]);
        let (train, validation) = Share::Fraction(0.1).split(57);
        let said = message(Windows::drawn(Arc::clone(&corpus), train.clone(), 1, 128, 0));
        assert!(
            said.contains("text.txt` is too short: of its 57 tokens 51 are for training"),
            "{said}"
        );
        assert!(said.contains("one window needs 129"), "{said}");
        let said = message(Windows::even(Arc::clone(&corpus), validation, 1, 8, 1));
        assert!(
            said.contains("6 are for validation, and one window needs 9"),
            "{said}"
        );
        assert!(Windows::drawn(corpus, train, 1, 50, 0).is_ok());
    }

    #[test]
    fn even_windows_reach_from_the_first_token_to_the_last() {
        let corpus = counting(1000);
        let windows = Windows::even(corpus, 900..1000, 2, 9, 2).unwrap();
        let starts: Vec<u32> = (0..2)
            .flat_map(|index| {
                windows
                    .micro_batch(7, MicroBatch(index), 0)
                    .unwrap()
                    .0
                    .ids()
                    .to_vec()
            })
            .step_by(9)
            .collect();
        assert_eq!(starts, [900, 930, 960, 990]);
    }

    #[test]
    fn steps_micro_batches_rows_replicas_and_seeds_draw_their_own_windows() {
        let corpus = counting(1_000_000);
        let draw = |seed, step, micro_batch, replica| {
            let windows = Windows::drawn(Arc::clone(&corpus), 0..1_000_000, 2, 1, seed).unwrap();
            windows
                .micro_batch(step, MicroBatch(micro_batch), replica)
                .unwrap()
                .0
                .ids()
                .to_vec()
        };
        let all = [
            draw(1, 0, 0, 0),
            draw(2, 0, 0, 0),
            draw(1, 1, 0, 0),
            draw(1, 0, 1, 0),
            draw(1, 0, 0, 1),
        ]
        .concat();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 10, "{all:?}");
    }

    proptest! {
        #[test]
        fn windows_lie_inside_their_part_and_the_target_is_one_token_later(
            count in 40_usize..400,
            held in 10_u64..20,
            rows in 1_usize..4,
            seq in 1_usize..9,
            place in (any::<u64>(), 0_u32..20, 0_u32..3),
            seed in any::<u64>(),
        ) {
            let corpus = counting(count);
            let (train, validation) = Share::Count(held).split(corpus.count());
            prop_assert!(train.end == validation.start && validation.end == count as u64);
            let drawn = Windows::drawn(Arc::clone(&corpus), train.clone(), rows, seq, seed).unwrap();
            let even = Windows::even(corpus, validation.clone(), rows, seq, 7).unwrap();
            let (step, micro_batch, replica) = place;
            for (source, span) in [(&drawn, &train), (&even, &validation)] {
                let (input, target) = source.micro_batch(step, MicroBatch(micro_batch), replica).unwrap();
                let again = source.micro_batch(step, MicroBatch(micro_batch), replica).unwrap();
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
}

mod images {
    use super::*;

    fn idx(magic: u32, dims: &[u32], bytes: &[u8]) -> Vec<u8> {
        let header = std::iter::once(&magic)
            .chain(dims)
            .flat_map(|word| word.to_be_bytes());
        header.chain(bytes.iter().copied()).collect()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// `count` images of 2 x 3 pixels: image i has all pixels i and the label i.
    fn pair(count: u8) -> TempDir {
        let pixels: Vec<u8> = (0..count).flat_map(|image| [image; 6]).collect();
        let labels: Vec<u8> = (0..count).collect();
        folder(&[
            ("t-images-idx3-ubyte", &idx(0x803, &[count.into(), 2, 3], &pixels)),
            ("t-labels-idx1-ubyte", &idx(0x801, &[count.into()], &labels)),
        ])
    }

    fn read(folder: &Path) -> Arc<LabelledImages> {
        Arc::new(LabelledImages::read(folder, None).unwrap())
    }

    fn labels(source: &Images, steps: Range<u64>, micro_batches: u32, replicas: u32) -> Vec<u32> {
        let places = steps
            .flat_map(|step| (0..replicas).map(move |replica| (step, replica)))
            .flat_map(|(step, replica)| {
                (0..micro_batches).map(move |index| (step, MicroBatch(index), replica))
            });
        places
            .flat_map(|(step, index, replica)| {
                source.micro_batch(step, index, replica).unwrap().1.ids().to_vec()
            })
            .collect()
    }

    #[test]
    fn pixels_are_scaled_to_one_and_stay_with_their_label() {
        let folder = pair(200);
        let images = Images::shuffled(read(folder.path()), 0..200, 4, 1, 1, 3).unwrap();
        let (input, target) = images.micro_batch(5, MicroBatch(0), 0).unwrap();
        assert_eq!((input.dims(), target.dims()), (&[4, 2, 3][..], &[4][..]));
        assert_eq!((*input.shape(), *target.shape()), images.shapes());
        for (pixels, &label) in input.f32().chunks(6).zip(target.ids()) {
            assert_eq!(pixels, [label as f32 / 255.0; 6]);
        }
    }

    #[test]
    fn validation_is_in_order_and_fills_the_last_micro_batch_with_ignored_rows() {
        let folder = pair(10);
        let images = Images::in_order(read(folder.path()), 5..10, 3).unwrap();
        assert_eq!(labels(&images, 0..1, 2, 1), [5, 6, 7, 8, 9, IGNORED]);
        assert_eq!(labels(&images, 9..10, 3, 1)[6..], [IGNORED; 3]);
    }

    #[test]
    fn gzipped_files_are_told_by_their_contents_and_labels_can_be_named() {
        let images = gzip(&idx(0x803, &[2, 1, 2], &[1, 2, 3, 4]));
        let folder = folder(&[
            ("pictures", &images),
            ("answers", &gzip(&idx(0x801, &[2], &[0, 1]))),
        ]);
        let (pictures, answers) = (folder.path().join("pictures"), folder.path().join("answers"));
        assert_eq!(
            LabelledImages::read(&pictures, Some(&answers)).unwrap().count(),
            2
        );
        let said = message(LabelledImages::read(&pictures, None));
        assert!(said.contains("its name does not say `images`"), "{said}");
    }

    #[test]
    fn epochs_differ_in_order() {
        let folder = pair(64);
        let images = Images::shuffled(read(folder.path()), 0..64, 16, 4, 1, 1).unwrap();
        let (first, second) = (labels(&images, 0..1, 4, 1), labels(&images, 1..2, 4, 1));
        assert_ne!(first, second);
        assert_ne!(first, (0..64).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn every_image_comes_exactly_once_an_epoch(
            count in 1_u8..100,
            held in 0_u64..50,
            rows in 1_usize..7,
            micro_batches in 1_u32..5,
            replicas in 1_u32..4,
            seed in any::<u64>(),
        ) {
            let folder = pair(count);
            let (train, _) = Share::Count(held.min(u64::from(count) - 1)).split(count.into());
            let size = train.end;
            let images =
                Images::shuffled(read(folder.path()), train, rows, micro_batches, replicas, seed).unwrap();
            let per_step = rows as u64 * u64::from(micro_batches * replicas);
            let taken = labels(&images, 0..(3 * size).div_ceil(per_step), micro_batches, replicas);
            for epoch in taken.chunks_exact(size as usize) {
                let mut sorted = epoch.to_vec();
                sorted.sort_unstable();
                prop_assert_eq!(sorted, (0..size as u32).collect::<Vec<_>>());
            }
        }
    }

    fn refused(images: &[u8], labels: &[u8]) -> String {
        let folder = folder(&[("t-images-idx3-ubyte", images), ("t-labels-idx1-ubyte", labels)]);
        message(LabelledImages::read(
            &folder.path().join("t-images-idx3-ubyte"),
            None,
        ))
    }

    #[test]
    fn a_wrong_magic_number_is_shown_beside_the_right_one() {
        let labels = idx(0x801, &[1], &[0]);
        let said = refused(&labels, &labels);
        assert!(said.contains("t-images-idx3-ubyte` is not an IDX file"), "{said}");
        assert!(said.contains("starts with 00000801, expected 00000803"), "{said}");
        let images = idx(0x803, &[1, 1, 1], &[0]);
        let said = refused(&images, &images);
        assert!(
            said.contains("t-labels-idx1-ubyte` is not an IDX file of unsigned bytes with 1 dim"),
            "{said}"
        );
        let floats = idx(0xd03, &[1, 1, 1], &[0; 4]);
        assert!(refused(&floats, &labels).contains("starts with 00000d03, expected 00000803"));
    }

    #[test]
    fn truncated_and_overlong_files_say_what_there_is_and_what_is_needed() {
        let labels = idx(0x801, &[2], &[0, 1]);
        let whole = idx(0x803, &[2, 2, 2], &[9; 8]);
        let said = refused(&whole[..whole.len() - 3], &labels);
        assert!(
            said.contains("is truncated: it holds 5 of the 8 bytes that its dimensions [2, 2, 2]"),
            "{said}"
        );
        let packed = gzip(&whole);
        assert!(refused(&packed[..packed.len() - 9], &labels).contains("is truncated"));
        assert!(
            refused(&packed[..packed.len() - 1], &labels).contains("the end of its gzip stream is missing")
        );
        assert!(refused(&whole[..7], &labels).contains("is truncated: it ends in its dimensions"));
        assert!(refused(&whole[..3], &labels).contains("is truncated: it ends in its magic number"));
        assert!(refused(&[], &labels).ends_with("is empty"));
        assert!(refused(&[&whole[..], &[1]].concat(), &labels).contains("holds more than the 8 bytes"));
        let absurd = idx(0x803, &[u32::MAX, u32::MAX, u32::MAX], &[]);
        assert!(refused(&absurd, &labels).contains("impossible dimensions"));
    }

    #[test]
    fn images_and_labels_that_are_no_pair_are_both_named() {
        let said = refused(&idx(0x803, &[2, 1, 1], &[0, 0]), &idx(0x801, &[3], &[0; 3]));
        assert!(said.contains("t-images-idx3-ubyte` holds 2 images"), "{said}");
        assert!(
            said.contains("t-labels-idx1-ubyte` 3 labels: they are not a pair"),
            "{said}"
        );
    }

    #[test]
    fn missing_files_bad_folders_and_bad_labels_are_named() {
        let folder = pair(12);
        let images = read(folder.path());
        images.check_classes(12).unwrap();
        let said = message(images.check_classes(10));
        assert!(
            said.contains("t-labels-idx1-ubyte`: label 10 of image 10 is outside the model's 10 classes"),
            "{said}"
        );
        assert!(
            message(Images::in_order(images, 12..12, 1)).contains("none of its 12 images is for validation")
        );
        fs::remove_file(folder.path().join("t-labels-idx1-ubyte")).unwrap();
        let said = message(LabelledImages::read(folder.path(), None));
        assert!(
            said.starts_with("cannot read `") && said.contains("t-labels-idx1-ubyte"),
            "{said}"
        );
        fs::copy(
            folder.path().join("t-images-idx3-ubyte"),
            folder.path().join("a-images-idx3-ubyte"),
        )
        .unwrap();
        assert!(
            message(LabelledImages::read(folder.path(), None)).contains("holds 2 files of images; name one")
        );
        assert!(
            message(LabelledImages::read(TempDir::new().unwrap().path(), None))
                .contains("holds no IDX images")
        );
    }

    #[test]
    fn the_mnist_test_files_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/mnist-t10k");
        if !folder.exists() {
            println!("skipped: {} is absent", folder.display());
            return;
        }
        let images = read(&folder);
        images.check_classes(10).unwrap();
        assert_eq!(images.count(), 10_000);
        let (train, validation) = Share::Count(2000).split(images.count());
        assert_eq!((train.end, validation.end), (8000, 10_000));
        let source = Images::in_order(images, 0..10_000, 5).unwrap();
        let (input, target) = source.micro_batch(0, MicroBatch(0), 0).unwrap();
        assert_eq!(
            (input.dims(), target.ids()),
            (&[5, 28, 28][..], &[7, 2, 1, 0, 4][..])
        );
    }
}
