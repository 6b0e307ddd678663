// `flashmla kv`: cache pages in files.
#include "cli/kv/kv.hpp"

namespace flashmla::cli {

void add_kv(CLI::App& app, Selected& selected) {
    CLI::App* kv =
        app.add_subcommand("kv", "Inspect, verify, convert and compare cache pages in .npy and .safetensors files");
    kv->require_subcommand(1);
    kv->footer(
        "A file holds a cache as a tensor (pages, page, 1, record), (pages, page, record), (tokens, record) or, with\n"
        "--page, (pages, page bytes). Its format follows from element type and record size: bf16 and fp16 by type, "
        "one-byte\n"
        "records of 656 bytes fp8_656, of 584 bytes fp8_584, others fp8_flat. NumPy has neither bf16 nor fp8: 2-byte\n"
        "integers need --format bf16 or fp16. docs/kv_formats.md has the byte maps.\n"
        "`flashmla kv COMMAND --help` lists a command's options with examples.");
    add_kv_inspect(*kv, selected);
    add_kv_verify(*kv, selected);
    add_kv_convert(*kv, selected);
    add_kv_diff(*kv, selected);
}

}  // namespace flashmla::cli
