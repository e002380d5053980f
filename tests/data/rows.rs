use pipewright::data::{Course, Rows, Table, Targets};

use super::*;

/// Rows with the inputs `[n, 10 n]` and the class `n % 3`.
fn classes(count: u32) -> Arc<Table> {
    let inputs = (0..count).flat_map(|row| [row as f32, 10.0 * row as f32]).collect();
    let inputs = Tensor::from_vec(&[count as usize, 2], inputs).unwrap();
    let targets = Tensor::from_ids(&[count as usize], (0..count).map(|row| row % 3).collect()).unwrap();
    Arc::new(Table::new(&inputs, &targets).unwrap())
}

/// The first input of each row of a step.
fn step_of(source: &Rows, step: u64, micro_batches: u32) -> Vec<u32> {
    let each = |micro_batch| {
        let (input, target) = source.micro_batch(step, MicroBatch(micro_batch)).unwrap();
        for (row, class) in input.f32().chunks(2).zip(target.ids()) {
            assert_eq!((row[1], *class), (10.0 * row[0], row[0] as u32 % 3));
        }
        input.f32().chunks(2).map(|row| row[0] as u32).collect::<Vec<_>>()
    };
    (0..micro_batches).flat_map(each).collect()
}

#[test]
fn an_epoch_has_every_row_once_and_another_batch_goes_on_where_it_was() {
    let source = Rows::shuffled(classes(12), 0..12, 2, 3, 7).unwrap();
    let mut epoch = [step_of(&source, 0, 3), step_of(&source, 1, 3)].concat();
    let next = [step_of(&source, 2, 3), step_of(&source, 3, 3)].concat();
    assert_ne!(epoch, next);
    let course = Course::new(6).go_on(1, 2);
    let by_two = Rows::shuffled(classes(12), 0..12, 2, 1, 7).unwrap().on_course(course);
    let parts: Vec<_> = (1..4).flat_map(|step| step_of(&by_two, step, 1)).collect();
    assert_eq!(parts, epoch[6..]);
    epoch.sort();
    assert_eq!(epoch, (0..12).collect::<Vec<_>>());
}

#[test]
fn rows_in_order_end_with_targets_that_do_not_count() {
    let source = Rows::in_order(classes(12), 7..12, 2).unwrap();
    assert_eq!(source.micro_batches(), 3);
    assert_eq!(step_of(&source, 3, 2), [7, 8, 9, 10]);
    let (input, target) = source.micro_batch(0, MicroBatch(2)).unwrap();
    assert_eq!((input.f32(), target.ids()), (&[11.0, 110.0, 0.0, 0.0][..], &[2, IGNORED][..]));
    let numbers = Tensor::from_vec(&[3, 1], vec![1.0, 2.0, 3.0]).unwrap();
    let numbers = Arc::new(Table::new(&numbers, &numbers).unwrap());
    has(&message(Rows::in_order(Arc::clone(&numbers), 0..3, 2)), &["3 rows do not fill micro-batches of 2"]);
    Rows::in_order(numbers, 0..2, 2).unwrap();
}

#[test]
fn a_table_needs_as_many_targets_as_inputs() {
    let of = |rows: usize| Tensor::zeros(&[rows, 1]);
    has(&message(Table::new(&of(3), &of(2))), &["3 rows of inputs and 2 of targets"]);
    assert!(message(Table::new(&of(0), &of(0))).contains("1 or more"));
    assert!(message(Rows::shuffled(classes(3), 1..1, 1, 1, 1)).contains("no row is in this part"));
    assert!(message(Rows::shuffled(classes(3), 0..4, 1, 1, 1)).contains("0..4 is not a part of"));
    assert!(message(Rows::shuffled(classes(3), 0..3, 0, 1, 1)).contains("at least one row"));
}

#[test]
fn the_fingerprint_of_rows_covers_all_of_them() {
    let of = |table| Rows::in_order(table, 0..3, 3).unwrap().fingerprint().unwrap();
    assert!(of(classes(12)).same_batches(&of(classes(12))));
    assert!(!of(classes(12)).same_contents(&of(classes(11))));
}

#[test]
fn a_csv_has_inputs_and_targets_by_the_names_of_its_columns() {
    let text = "\u{feff}kind,width,\"height, in m\",price\r\n2,1.5,-3e2,10\r\n0,\"2\",4,20\r\n";
    let folder = folder(&[("a.csv", text.as_bytes()), ("a.tsv", text.replace(',', "\t").as_bytes())]);
    let path = folder.path().join("a.csv");
    let first = |targets| {
        let table = Arc::new(Table::csv(&path, targets).unwrap());
        Rows::in_order(table, 0..2, 2).unwrap().micro_batch(0, MicroBatch(0)).unwrap()
    };
    let (input, target) = first(Targets::Class("kind"));
    assert_eq!(input, Tensor::from_vec(&[2, 3], vec![1.5, -300.0, 10.0, 2.0, 4.0, 20.0]).unwrap());
    assert_eq!(target, Tensor::from_ids(&[2], vec![2, 0]).unwrap());
    let (input, target) = first(Targets::Numbers(&["price", "width"]));
    assert_eq!(input, Tensor::from_vec(&[2, 2], vec![2.0, -300.0, 0.0, 4.0]).unwrap());
    assert_eq!(target, Tensor::from_vec(&[2, 2], vec![10.0, 1.5, 20.0, 2.0]).unwrap());
    let tabs = Table::csv(&folder.path().join("a.tsv"), Targets::Class("kind")).unwrap();
    assert_eq!(tabs.count(), 2);
}

#[test]
fn a_csv_that_cannot_be_used_is_refused_with_its_line_and_column() {
    let said = |text: &str, targets| {
        let folder = folder(&[("a.csv", text.as_bytes())]);
        message(Table::csv(&folder.path().join("a.csv"), targets))
    };
    let class = Targets::Class("kind");
    let cases = [
        ("a,b\n1,2\n", "a.csv` has no column \"kind\" for targets, only \"a\", \"b\""),
        (
            "kind,b\n1,2\n0,two\n",
            "a.csv` line 3 has \"two\" in the column \"b\", where a finite number was expected",
        ),
        ("kind,b\n1,inf\n", "line 2 has \"inf\" in the column \"b\""),
        ("kind,b\n1,\n", "line 2 has \"\" in the column \"b\""),
        ("kind,b\n-1,2\n", "line 2 has \"-1\" in the column \"kind\", where a class"),
        ("kind,b\n1.0,2\n", "line 2 has \"1.0\" in the column \"kind\", where a class"),
        ("kind,b\n1,2,3\n", "a.csv` cannot be read as comma-separated values"),
        ("kind,b\n", "0 rows of inputs"),
    ];
    for (text, expected) in cases {
        has(&said(text, class), &[expected]);
    }
    has(&said("price,b\n1,2\n", Targets::Numbers(&["price", "size"])), &["has no column \"size\""]);
}
