package gateway

import (
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"qr-gateway/gateway/api"
)

// cors lets browsers on the allowed origins in. Without any it does nothing, and browsers refuse by themselves.
func (s *Server) cors(c *gin.Context) {
	origin := c.GetHeader("Origin")
	if origin == "" || !s.allowed(origin) {
		return
	}
	h := c.Writer.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", requestIDHeader+", Retry-After, "+api.QueueHeaders)
	if c.Request.Method != http.MethodOptions || c.GetHeader("Access-Control-Request-Method") == "" {
		return
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
	h.Set("Access-Control-Allow-Headers", c.GetHeader("Access-Control-Request-Headers"))
	h.Set("Access-Control-Max-Age", "600")
	c.AbortWithStatus(http.StatusNoContent)
}

func (s *Server) allowed(origin string) bool {
	return slices.Contains(s.cfg.Origins, "*") || slices.Contains(s.cfg.Origins, origin)
}
