package bench

import (
	"fmt"

	"qr-gateway/backends/llama/engine"
)

// passage is what prompts are made of: plain prose, repeated with a running number until it is long enough.
const passage = ` The lighthouse keeper climbed the stairs every evening at six, and every evening he counted them, for the ` +
	`number was never quite the same. Below him the harbour went about its business: nets were mended, boats were painted, ` +
	`and the old ferry left for the islands with its usual complaint. He lit the lamp, wrote the hour in the book, and looked ` +
	`for a long while at the water. Somebody had once told him that a light is only a question asked of the dark. He had not ` +
	`understood it then. On the %dth night of that winter a boat answered.`

// prompt makes exactly n tokens.
func prompt(m *engine.Model, n int) ([]int32, error) {
	if !m.Info().HasTokenizer {
		return made(m.Info().Vocabulary, n), nil
	}
	var tokens []int32
	for i := 3; len(tokens) < n; i++ {
		more, err := m.Tokenize(fmt.Sprintf(passage, i), i == 3, false)
		if err != nil {
			return nil, fmt.Errorf("make prompt: %w", err)
		}
		tokens = append(tokens, more...)
	}
	return tokens[:n], nil
}

// made is a prompt for a model that has token ids only.
func made(vocabulary, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((i*7919 + 13) % vocabulary)
	}
	return tokens
}
