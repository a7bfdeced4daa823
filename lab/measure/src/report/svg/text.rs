//! Width of texts, and their division into lines.
//!
//! An SVG without a script cannot measure text. Widths are therefore estimated per character from the widest
//! of the usual fonts (DejaVu Sans, Verdana). Texts in narrower fonts have space to spare.

use super::FONT;

/// Height of an em in pixels. The font size of plotters is a line height of 1.24 em.
pub(super) const EM: f64 = FONT.1 as f64 / 1.24;
/// What replaces the end of a text that is too long.
const ELLIPSIS: char = '…';

/// Upper bound of the width in pixels of a text in [`FONT`], for the usual fonts.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(em_width).sum::<f64>() * EM
}

/// Width of a character in em, rounded up by class.
fn em_width(character: char) -> f64 {
    match character {
        'f' | 'i' | 'j' | 'l' | 'r' | 't' | 'I' | ' ' | '.' | ',' | ':' | ';' | '-' | '/' | '(' | ')' => 0.42,
        'a'..='l' | 'n'..='v' | 'x'..='z' | '0'..='9' | 'µ' => 0.65,
        '%' | '@' => 1.08,
        'm' | 'w' | 'M' | 'W' => 1.0,
        'A'..='Z' => 0.79,
        ' '..='~' => 0.86,
        _ => 1.05,
    }
}

/// Divides a text into at most `most` lines of at most `width` pixels: between words, or within a word that
/// is longer than a line. The end of a longer text is replaced by an ellipsis. A line has at least one
/// character, also if `width` is smaller.
pub(super) fn wrap(text: &str, width: f64, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let separator = if lines.last().is_some_and(|line| !line.is_empty()) { " " } else { "" };
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line}{separator}{word}")) <= width => {
                line.push_str(separator);
                line.push_str(word);
            }
            _ => lines.extend(pieces(word, width)),
        }
    }
    lines.retain(|line| !line.is_empty());
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            shorten(last, width);
        }
    }
    lines
}

/// Divides a word into pieces of at most `width` pixels.
fn pieces(word: &str, width: f64) -> Vec<String> {
    let mut all = vec![String::new()];
    for character in word.chars() {
        match all.last_mut() {
            Some(piece) if piece.is_empty() || text_width(piece) + em_width(character) * EM <= width => {
                piece.push(character);
            }
            _ => all.push(character.into()),
        }
    }
    all
}

/// Replaces the end of a line by an ellipsis that fits.
fn shorten(line: &mut String, width: f64) {
    while !line.is_empty() && text_width(line) + em_width(ELLIPSIS) * EM > width {
        line.pop();
    }
    line.push(ELLIPSIS);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Widths of the characters from space to tilde in DejaVu Sans 2.37, in units of 2,048 to the em, from its
    /// table `hmtx`.
    const DEJAVU: [u16; 95] = [
        651, 821, 942, 1716, 1303, 1946, 1597, 563, 799, 799, 1024, 1716, 651, 739, 651, 690, 1303, 1303,
        1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303, 690, 690, 1716, 1716, 1716, 1087, 2048, 1401, 1405,
        1430, 1577, 1294, 1178, 1587, 1540, 604, 604, 1343, 1141, 1767, 1532, 1612, 1235, 1612, 1423, 1300,
        1251, 1499, 1401, 2025, 1403, 1251, 1403, 799, 690, 799, 1716, 1024, 1024, 1255, 1300, 1126, 1300,
        1260, 721, 1300, 1298, 569, 569, 1186, 569, 1995, 1298, 1253, 1300, 1300, 842, 1067, 803, 1298, 1212,
        1675, 1212, 1212, 1075, 1303, 690, 1303, 1716,
    ];

    /// Width in pixels of a text in DejaVu Sans. The ellipsis is one em wide.
    pub(in crate::report::svg) fn dejavu_width(text: &str) -> f64 {
        let width = |character: char| {
            let place = (character as usize).wrapping_sub(usize::from(b' '));
            DEJAVU.get(place).map_or(1.0, |width| f64::from(*width) / 2048.0)
        };
        text.chars().map(width).sum::<f64>() * EM
    }

    #[test]
    fn estimated_widths_are_never_too_small() {
        for character in ' '..='~' {
            let text = character.to_string();
            assert!(text_width(&text) >= dejavu_width(&text), "{text}");
        }
    }

    #[test]
    fn texts_are_divided_between_words() {
        let width = text_width("one two");
        assert_eq!(wrap("one two", width, 3), ["one two"]);
        assert_eq!(wrap("one two three", width, 3), ["one two", "three"]);
        assert_eq!(wrap("", width, 3), Vec::<String>::new());
    }

    #[test]
    fn words_that_are_too_long_are_divided() {
        let width = text_width("wwww");
        assert_eq!(wrap("wwwwww w", width, 3), ["wwww", "ww w"]);
        assert_eq!(wrap("ab", 1.0, 3), ["a", "b"], "a line has at least one character");
    }

    #[test]
    fn the_end_of_a_long_text_is_replaced() {
        let width = text_width("wwww");
        assert_eq!(wrap("wwww wwww wwww", width, 2), ["wwww", "ww…"]);
        assert_eq!(wrap("abc", 1.0, 1), ["…"]);
    }
}
