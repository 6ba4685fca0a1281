package server

// Stopping reports whether the server takes no more requests.
func Stopping(s *Server) bool {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	return s.gate.closed
}
