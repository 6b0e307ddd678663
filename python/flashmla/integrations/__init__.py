"""flash_mla put in the place of the copies that inference engines carry: flashmla.integrations.vllm and .sglang."""
