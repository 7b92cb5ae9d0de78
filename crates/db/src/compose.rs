//! A question put together while the program runs, for the few places where nobody can know its shape beforehand: the
//! filters of a directory, say.
//!
//! Everything else is one `&'static str`. Here the statement is a row of such texts: [`Composed`] takes pieces that
//! stand in the program, and values, and has no way to take anything else. A value becomes the next `$n`; its text never
//! comes near the statement. So a caller can choose among what the program can ask, and cannot ask anything new.
//!
//! There is no end to the shapes of such statements, so only a few stay prepared. They can only read.
use super::Value;

/// Pieces of SQL that stand in the program, and the values between them.
#[derive(Debug, Clone, Default)]
pub struct Composed {
    pub(super) text: String,
    pub(super) params: Vec<Value>,
}

impl Composed {
    pub fn new(piece: &'static str) -> Self {
        Self { text: piece.to_owned(), params: vec![] }
    }

    /// The next piece.
    pub fn sql(&mut self, piece: &'static str) -> &mut Self {
        self.text.push_str(piece);
        self
    }

    /// A value, as the next parameter.
    pub fn value(&mut self, value: impl Into<Value>) -> &mut Self {
        self.params.push(value.into());
        self.text.push('$');
        self.text.push_str(&self.params.len().to_string());
        self
    }

    /// How many values there are; each engine has its limit.
    pub fn values(&self) -> usize {
        self.params.len()
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
}
