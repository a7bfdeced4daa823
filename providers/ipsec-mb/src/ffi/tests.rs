//! The layout that this crate has in mind against the header itself, as a C compiler reads it.
#![allow(clippy::arithmetic_side_effects, reason = "offsets of a struct, in a test")]

use super::layout::{AesMacFields, CcmFields, GcmContext, GcmKeyData, HmacFields, Job, KNOWN, ManagerHead};
use core::mem::offset_of;
use std::path::Path;
use std::process::Command;

const HEADER: &str = "/usr/include/intel-ipsec-mb.h";

/// Where the fields of a hash start in a job.
const FIELDS: usize = offset_of!(Job, hash_fields);

/// Each row: what C says, as an expression, and what is expected.
fn expected() -> Vec<(String, usize)> {
    let mut rows = Vec::new();
    let mut row = |expression: &str, value: usize| rows.push((expression.to_owned(), value));
    for (field, offset) in [
        ("features", offset_of!(ManagerHead, features)),
        ("used_arch", offset_of!(ManagerHead, used_arch)),
        ("keyexp_128", offset_of!(ManagerHead, expand_key)),
        ("keyexp_256", offset_of!(ManagerHead, expand_key) + 16),
        ("cmac_subkey_gen_128", offset_of!(ManagerHead, cmac_subkeys)),
        ("xcbc_keyexp", offset_of!(ManagerHead, xcbc_expand)),
        ("sha1_one_block", offset_of!(ManagerHead, one_block)),
        ("sha512_one_block", offset_of!(ManagerHead, one_block) + 32),
        ("sha1", offset_of!(ManagerHead, hash_all)),
        ("sha256", offset_of!(ManagerHead, hash_all) + 16),
        ("sha512", offset_of!(ManagerHead, hash_all) + 32),
        ("gcm128_enc", offset_of!(ManagerHead, gcm_seal)),
        ("gcm256_enc", offset_of!(ManagerHead, gcm_seal) + 16),
        ("gcm128_dec", offset_of!(ManagerHead, gcm_open)),
        ("gcm256_dec", offset_of!(ManagerHead, gcm_open) + 16),
        ("gcm128_pre", offset_of!(ManagerHead, gcm_expand)),
        ("gcm256_pre", offset_of!(ManagerHead, gcm_expand) + 16),
        ("get_next_burst", offset_of!(ManagerHead, queue_free)),
        ("submit_burst", offset_of!(ManagerHead, queue_submit)),
        ("flush_burst", offset_of!(ManagerHead, queue_flush)),
        ("submit_cipher_burst", offset_of!(ManagerHead, cipher_burst)),
        ("submit_hash_burst", offset_of!(ManagerHead, hash_burst)),
    ] {
        row(&format!("offsetof(IMB_MGR, {field})"), offset);
    }
    for (field, offset) in [
        ("enc_keys", offset_of!(Job, encrypt_keys)),
        ("dec_keys", offset_of!(Job, decrypt_keys)),
        ("key_len_in_bytes", offset_of!(Job, key_len)),
        ("src", offset_of!(Job, source)),
        ("dst", offset_of!(Job, target)),
        ("cipher_start_src_offset_in_bytes", offset_of!(Job, cipher_offset)),
        ("msg_len_to_cipher_in_bytes", offset_of!(Job, cipher_len)),
        ("hash_start_src_offset_in_bytes", offset_of!(Job, hash_offset)),
        ("msg_len_to_hash_in_bytes", offset_of!(Job, hash_len)),
        ("iv", offset_of!(Job, initial_vector)),
        ("iv_len_in_bytes", offset_of!(Job, initial_vector_len)),
        ("auth_tag_output", offset_of!(Job, tag)),
        ("auth_tag_output_len_in_bytes", offset_of!(Job, tag_len)),
        ("u.HMAC._hashed_auth_key_xor_ipad", FIELDS + offset_of!(HmacFields, inner)),
        ("u.HMAC._hashed_auth_key_xor_opad", FIELDS + offset_of!(HmacFields, outer)),
        ("u.XCBC._k1_expanded", FIELDS + offset_of!(AesMacFields, round_keys)),
        ("u.XCBC._k2", FIELDS + offset_of!(AesMacFields, whole)),
        ("u.XCBC._k3", FIELDS + offset_of!(AesMacFields, filled)),
        ("u.CMAC._key_expanded", FIELDS + offset_of!(AesMacFields, round_keys)),
        ("u.CMAC._skey1", FIELDS + offset_of!(AesMacFields, whole)),
        ("u.CMAC._skey2", FIELDS + offset_of!(AesMacFields, filled)),
        ("u.CCM.aad", FIELDS + offset_of!(CcmFields, aad)),
        ("u.CCM.aad_len_in_bytes", FIELDS + offset_of!(CcmFields, aad_len)),
        ("cipher_mode", offset_of!(Job, cipher_mode)),
        ("cipher_direction", offset_of!(Job, direction)),
        ("hash_alg", offset_of!(Job, hash)),
        ("chain_order", offset_of!(Job, chain_order)),
        ("status", offset_of!(Job, status)),
    ] {
        row(&format!("offsetof(IMB_JOB, {field})"), offset);
    }
    row("sizeof(IMB_JOB)", size_of::<Job>());
    rows
}

#[test]
fn the_layout_is_that_of_the_header() {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || !Path::new(HEADER).exists() {
        return casemate_left_out::note(format!("{HEADER} is not there"));
    }
    let rows = expected();
    let prints: String =
        rows.iter().map(|(expression, _)| format!("printf(\"%zu\\n\", (size_t)({expression}));\n")).collect();
    let sizes = "printf(\"%zu %zu %d\\n\", sizeof(struct gcm_key_data), sizeof(struct gcm_context_data), IMB_VERSION_NUM);";
    let source = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include <intel-ipsec-mb.h>\nint main(void) {{\n{prints}{sizes}\n}}\n"
    );
    let scratch = casemate_scratch::Scratch::new("ipsec-mb-layout");
    let (file, program) = (scratch.file("layout.c"), scratch.file("layout"));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg(&file).arg("-o").arg(&program).status().unwrap();
    assert!(compiled.success(), "the header does not compile");
    let printed = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();

    let lines: Vec<&str> = printed.lines().collect();
    let (last, offsets) = lines.split_last().unwrap();
    let numbers: Vec<usize> = last.split(' ').map(|number| number.parse().unwrap()).collect();
    if !KNOWN.iter().any(|known| *known as usize == numbers[2]) {
        return casemate_left_out::note(format!("{HEADER} is of version {:#x}", numbers[2]));
    }
    let found: Vec<(String, usize)> =
        rows.iter().zip(offsets).map(|((name, _), line)| (name.clone(), line.parse().unwrap())).collect();
    assert_eq!(found, rows);
    assert!(numbers[0] <= size_of::<GcmKeyData>() && numbers[1] <= size_of::<GcmContext>());
}
