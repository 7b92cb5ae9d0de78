//! What is moved: tables by their columns, rows in batches, and a fingerprint of each table.
use aws_lc_rs::digest;
use db::Value;
use tokio::sync::mpsc;

/// A table as both databases have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    /// In the order of their names, because the engines may add columns in different places.
    pub columns: Vec<String>,
}

impl Table {
    pub fn select(&self) -> String {
        format!("SELECT {} FROM {}", self.list(), quoted(&self.name))
    }

    /// The columns, as a statement names them.
    pub fn list(&self) -> String {
        self.columns.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
    }
}

/// A name that both engines take as it is.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Some rows of a table on their way.
pub type Batch = Vec<Vec<Value>>;
pub type Sender = mpsc::Sender<Batch>;
pub type Receiver = mpsc::Receiver<Batch>;

/// How many rows a batch has.
pub const BATCH: usize = 500;
/// How many batches are read ahead of the target.
pub const WAITING: usize = 4;

/// What the rows of a table add up to: the same for the same rows, in any order and from either engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fingerprint {
    pub rows: u64,
    sum: u128,
}

impl Fingerprint {
    pub fn add(&mut self, row: &[Value]) {
        let mut context = digest::Context::new(&digest::SHA256);
        for value in row {
            let mut part = |kind: u8, bytes: &[u8]| {
                context.update(&[kind]);
                context.update(&bytes.len().to_le_bytes());
                context.update(bytes);
            };
            match value {
                Value::Null => part(0, &[]),
                // SQLite stores truth values as 0 and 1.
                Value::Bool(truth) => part(1, &i64::from(*truth).to_le_bytes()),
                Value::Int(number) => part(1, &number.to_le_bytes()),
                Value::Real(number) => part(2, &number.to_le_bytes()),
                Value::Text(text) => part(3, text.as_bytes()),
                Value::Bytes(bytes) => part(4, bytes),
            }
        }
        let hash = context.finish();
        let (first, _) = hash.as_ref().split_at(16);
        let number = first.iter().fold(0_u128, |sum, byte| sum << 8 | u128::from(*byte));
        (self.rows, self.sum) = (self.rows + 1, self.sum.wrapping_add(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_count_in_any_order_and_each_value_in_its_place() {
        let of = |rows: &[&[Value]]| {
            let mut found = Fingerprint::default();
            for row in rows {
                found.add(row);
            }
            found
        };
        let (one, two): (&[Value], &[Value]) = (&["a".into(), 1_i64.into()], &["b".into(), Value::Null]);
        assert_eq!(of(&[one, two]), of(&[two, one]));
        assert_eq!(of(&[&[true.into()]]), of(&[&[1_i64.into()]]), "as SQLite stores it");
        assert_ne!(of(&[one, two]), of(&[one]), "one is missing");
        assert_ne!(of(&[one, one]), of(&[one, two]), "one is there twice");
        assert_ne!(
            of(&[&["ab".into(), "c".into()]]),
            of(&[&["a".into(), "bc".into()]]),
            "a value ends where it ends"
        );
        assert_ne!(of(&[&["1".into()]]), of(&[&[1_i64.into()]]), "a text is no number");
        assert_ne!(of(&[&[Value::Null]]), of(&[&["".into()]]), "nothing is no empty text");
    }
}
