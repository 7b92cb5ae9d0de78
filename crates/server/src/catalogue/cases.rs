//! docs/cases.md explains every number in the name of a test, and no others.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).expect("a page")
}

/// The numbers that a page has a row for, such as `p38`.
fn explained(page: &str) -> Vec<String> {
    let first = |line: &str| Some(line.strip_prefix("| ")?.split(' ').next()?.to_lowercase());
    page.lines().filter_map(first).filter(|word| is_number(word)).collect()
}

/// One or two letters and two digits.
fn is_number(word: &str) -> bool {
    let (class, number) = word.split_at(word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len()));
    matches!(class.len(), 1 | 2)
        && class.bytes().all(|letter| letter.is_ascii_lowercase())
        && number.len() == 2
        && number.bytes().all(|digit| digit.is_ascii_digit())
}

/// The numbers at the beginning of functions' names, each with one such name.
fn used() -> BTreeMap<String, String> {
    let (mut used, mut folders) =
        (BTreeMap::new(), ["crates", "tests", "client", "bench"].map(|name| root().join(name)).to_vec());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("a file").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a text");
                for name in text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next()) {
                    let before_last = name.rsplit_once('_').map_or("", |(before, _)| before);
                    let numbers = before_last.split('_').take_while(|word| is_number(word));
                    used.extend(numbers.map(|number| (number.to_owned(), name.to_owned())));
                }
            }
        }
    }
    used
}

#[test]
fn every_number_in_the_name_of_a_test_is_explained() {
    let (cases, faults, used) = (explained(&page("cases.md")), explained(&page("faults.md")), used());
    assert!(used.len() > 50, "only {} numbers were found", used.len());
    let unknown: Vec<_> =
        used.iter().filter(|(number, _)| !cases.contains(number) && !faults.contains(number)).collect();
    assert!(unknown.is_empty(), "explain these numbers in docs/cases.md: {unknown:?}");
    let unused: Vec<_> = cases.iter().filter(|number| !used.contains_key(*number)).collect();
    assert!(unused.is_empty(), "no test has these numbers of docs/cases.md in its name: {unused:?}");
}
