//! Queries that are composed at run time, for the few places whose shape depends on input: the filters of a directory, and
//! what belongs to the rows of one page.
//!
//! Every other statement is one `&'static str`. A [`Composed`] query is a list of such texts with values between them, and
//! accepts nothing else. A value becomes the next `$n`; its text never becomes part of the statement. So input can choose
//! among the program's own pieces and cannot add new SQL.
//!
//! Such queries have any number of shapes, so only a few stay prepared. They can only read.
use super::Value;

/// A query made of pieces of SQL that are part of the program, and of the values between them.
#[derive(Debug, Clone, Default)]
pub struct Composed {
    pub(super) text: String,
    pub(super) params: Vec<Value>,
}

impl Composed {
    /// A query that begins with this piece.
    pub fn new(piece: &'static str) -> Self {
        Self { text: piece.to_owned(), params: vec![] }
    }

    /// Appends a piece of SQL.
    pub fn sql(&mut self, piece: &'static str) -> &mut Self {
        self.text.push_str(piece);
        self
    }

    /// Appends a value, as the next parameter.
    pub fn value(&mut self, value: impl Into<Value>) -> &mut Self {
        self.params.push(value.into());
        self.text.push('$');
        self.text.push_str(&self.params.len().to_string());
        self
    }

    /// Appends values with commas between them, for `IN (…)`. There must be one at least: PostgreSQL refuses `IN ()`.
    pub fn values(&mut self, values: impl IntoIterator<Item = impl Into<Value>>) -> &mut Self {
        for (place, value) in values.into_iter().enumerate() {
            if place > 0 {
                self.sql(", ");
            }
            self.value(value);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_number_in_the_text() {
        let mut question = Composed::new("SELECT id FROM account WHERE name = ");
        question.value("' OR 1=1 --").sql(" AND email_verified = ").value(true);
        assert_eq!(question.text, "SELECT id FROM account WHERE name = $1 AND email_verified = $2");
        assert_eq!(question.params, vec![Value::from("' OR 1=1 --"), Value::from(true)]);
    }

    #[test]
    fn values_of_a_list_are_numbered_on() {
        let mut question = Composed::new("SELECT id FROM account WHERE name = ");
        question.value("Ada").sql(" AND id IN (").values(["1", "2", "3"]).sql(")");
        assert_eq!(question.text, "SELECT id FROM account WHERE name = $1 AND id IN ($2, $3, $4)");
        assert_eq!(question.params.len(), 4);
    }
}
