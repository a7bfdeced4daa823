//! SPDX licence expressions: whether a list of allowed licences satisfies one.
//!
//! `OR`, `AND`, `WITH`, parentheses, and the old `MIT/Apache-2.0`, which crates.io still holds and which means OR.

/// Whether `allowed` satisfies `expression`; none when it is not an expression.
pub(crate) fn satisfies(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = Words { words: spaced.split_whitespace().collect(), at: 0, allowed };
    let answer = words.any_of()?;
    words.peek().is_none().then_some(answer)
}

struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
    allowed: &'a [String],
}

impl Words<'_> {
    fn peek(&self) -> Option<&str> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at = self.at.saturating_add(usize::from(found));
        found
    }

    fn any_of(&mut self) -> Option<bool> {
        let mut answer = self.all_of()?;
        while self.take("OR") {
            answer |= self.all_of()?;
        }
        Some(answer)
    }

    /// AND binds stronger than OR (SPDX annex D.4).
    fn all_of(&mut self) -> Option<bool> {
        let mut answer = self.one()?;
        while self.take("AND") {
            answer &= self.one()?;
        }
        Some(answer)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let answer = self.any_of()?;
            return self.take(")").then_some(answer);
        }
        let mut licence = self.identifier()?;
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.identifier()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn identifier(&mut self) -> Option<String> {
        let word = self.peek().filter(|word| !matches!(*word, "OR" | "AND" | "WITH" | "(" | ")"))?.to_owned();
        self.at = self.at.saturating_add(1);
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str) -> Option<bool> {
        satisfies(expression, &["MIT".into(), "ISC".into(), "Apache-2.0 WITH LLVM-exception".into()])
    }

    #[test]
    fn expressions_are_evaluated() {
        assert_eq!(check("MIT"), Some(true));
        assert_eq!(check("GPL-3.0-only"), Some(false));
        assert_eq!(check("GPL-3.0-only OR MIT"), Some(true));
        assert_eq!(check("MIT/Unlicense"), Some(true));
        assert_eq!(check("MIT AND GPL-3.0-only"), Some(false));
        assert_eq!(check("GPL-2.0-only AND MIT OR ISC"), Some(true));
        assert_eq!(check("GPL-2.0-only AND (MIT OR ISC)"), Some(false));
        assert_eq!(check("Apache-2.0 WITH LLVM-exception"), Some(true));
        assert_eq!(check("Apache-2.0"), Some(false));
    }

    #[test]
    fn what_is_no_expression_is_no_answer() {
        for text in ["", "MIT OR", "(MIT", "MIT ISC", "MIT WITH", "AND"] {
            assert_eq!(check(text), None, "{text}");
        }
    }
}
